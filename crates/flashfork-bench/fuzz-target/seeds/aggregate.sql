SELECT category, avg(price), max(stock) FROM product WHERE id BETWEEN 10 AND 60 GROUP BY category HAVING count(*) > 1;
