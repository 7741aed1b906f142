SELECT sum(revenue) AS revenue FROM {{ ref('revenue') }}
