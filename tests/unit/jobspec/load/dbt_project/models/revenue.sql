{% set measures = {'orders': 'count(*)', 'revenue': 'sum(amount)'} %}
SELECT
  customer
  {%- for name, call in measures.items() %},
  {{ call }} AS {{ name }}
  {%- endfor %}
FROM {{ ref('paid') }}
GROUP BY customer
