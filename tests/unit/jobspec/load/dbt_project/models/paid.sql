SELECT * FROM {{ ref('stg_shop__orders') }} WHERE amount > 0
