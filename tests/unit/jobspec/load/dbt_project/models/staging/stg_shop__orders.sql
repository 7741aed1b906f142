-- One row per order.
SELECT id AS order_id, customer, amount, ordered_at
FROM {{ source('shop', 'orders') }}
WHERE amount IS NOT NULL
