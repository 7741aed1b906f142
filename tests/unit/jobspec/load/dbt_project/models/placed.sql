SELECT o.*, c.country
FROM {{ ref('stg_shop__orders') }} o
JOIN {{ ref('countries') }} c ON o.customer = c.customer
