SELECT DISTINCT customer, ordered_at FROM {{ ref('stg_shop__orders') }}
