CREATE INDEX customer_city     ON customer (city);
CREATE INDEX product_category  ON product (category);
CREATE INDEX purchase_customer ON purchase (customer);
CREATE INDEX purchase_placed   ON purchase (placed);
CREATE INDEX item_purchase     ON item (purchase);
CREATE INDEX item_product      ON item (product);
