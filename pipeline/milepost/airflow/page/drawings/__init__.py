"""SVG drawings of the Airflow page, without external styles or scripts."""
