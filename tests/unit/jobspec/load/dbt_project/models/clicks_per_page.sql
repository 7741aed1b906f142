SELECT page, count(*) AS clicks FROM {{ source('shop', 'clicks') }} GROUP BY page
