SELECT * FROM {{ ref('revenue') }}
{% if is_incremental() %} WHERE revenue > (SELECT max(revenue) FROM {{ this }}) {% endif %}
