CREATE TABLE customer (
    id     INTEGER PRIMARY KEY,
    name   TEXT    NOT NULL,
    city   TEXT    NOT NULL,
    credit INTEGER NOT NULL
);
CREATE TABLE product (
    id       INTEGER PRIMARY KEY,
    title    TEXT    NOT NULL,
    category TEXT    NOT NULL,
    price    INTEGER NOT NULL,
    stock    INTEGER NOT NULL
);
CREATE TABLE purchase (
    id       INTEGER PRIMARY KEY,
    customer INTEGER NOT NULL REFERENCES customer (id),
    placed   INTEGER NOT NULL,
    state    TEXT    NOT NULL,
    note     TEXT    NOT NULL
);
CREATE TABLE item (
    id       INTEGER PRIMARY KEY,
    purchase INTEGER NOT NULL REFERENCES purchase (id) ON DELETE CASCADE,
    product  INTEGER NOT NULL REFERENCES product (id),
    quantity INTEGER NOT NULL,
    paid     INTEGER NOT NULL,
    remark   TEXT    NOT NULL
);
