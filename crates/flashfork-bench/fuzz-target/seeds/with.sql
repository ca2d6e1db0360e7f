WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 9) SELECT x, (SELECT title FROM product WHERE id = x) FROM n WHERE x IN (SELECT product FROM item WHERE purchase < 20);
