-- Nexmark, query by query.

-- q0: all bids.
CREATE STREAMING TABLE q0 AS
SELECT auction, bidder, price, event_time FROM bid;

-- q1: prices in euros.
CREATE STREAMING TABLE q1 AS
SELECT auction, bidder, price * CAST(0.908 AS DECIMAL(6, 3)) AS price, event_time FROM bid;

-- q2: bids for some auctions.
CREATE STREAMING TABLE q2 AS
SELECT auction, price FROM bid WHERE auction % 123 = 0;

-- q3: who sells in a category, in three states.
CREATE STREAMING TABLE q3 AS
SELECT p.name, p.city, p.state, a.id
FROM auction a JOIN person p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA');

-- q4: the mean closing price of each category.
CREATE TEMPORARY VIEW closed AS
SELECT a.id, a.category, max(b.price) AS final
FROM auction a JOIN bid b ON a.id = b.auction
WHERE b.event_time BETWEEN a.event_time AND a.expires
GROUP BY a.id, a.category;

CREATE MATERIALIZED VIEW q4 AS
SELECT category, avg(final) AS mean FROM closed GROUP BY category;

-- q5: the auctions with most bids in each window.
CREATE TEMPORARY VIEW bids_per_window AS
SELECT auction, window.start AS starttime, window.end AS window_end, count(*) AS num
FROM bid GROUP BY auction, window(event_time, '10 seconds', '2 seconds');

CREATE MATERIALIZED VIEW most_bids AS
SELECT window_end, max(num) AS maxnum FROM bids_per_window GROUP BY window_end;

CREATE MATERIALIZED VIEW q5 AS
SELECT b.auction, b.starttime, b.window_end, b.num
FROM bids_per_window b JOIN most_bids m ON b.window_end = m.window_end AND b.num = m.maxnum;

-- q6: the mean of the last winning bids of each seller, as of each auction.
CREATE MATERIALIZED VIEW q6 AS
SELECT seller, id, event_time,
       avg(price) OVER (PARTITION BY seller ORDER BY event_time ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS mean
FROM q9;

-- q7: the highest bid of each window.
CREATE TEMPORARY VIEW highest AS
SELECT max(price) AS price, window.start AS starts, window.end AS window_end
FROM bid GROUP BY window(event_time, '10 seconds');

CREATE STREAMING TABLE q7 AS
SELECT b.auction, b.price, b.bidder, b.event_time
FROM bid b JOIN highest h ON b.price = h.price
WHERE b.event_time >= h.starts AND b.event_time < h.window_end;

-- q8: persons who are new and sell in the same window.
CREATE TEMPORARY VIEW new_persons AS
SELECT id, name, window.end AS window_end, count(*) AS n FROM person GROUP BY id, name, window(event_time, '10 seconds');

CREATE TEMPORARY VIEW sellers AS
SELECT seller, window.end AS window_end, count(*) AS n FROM auction GROUP BY seller, window(event_time, '10 seconds');

CREATE STREAMING TABLE q8 AS
SELECT p.id, p.name, p.window_end
FROM new_persons p JOIN sellers a ON p.id = a.seller AND p.window_end = a.window_end;

-- q9: the winning bid of each auction.
CREATE MATERIALIZED VIEW q9 AS
SELECT a.id, a.item, a.seller, b.bidder, b.price, b.event_time
FROM auction a JOIN bid b ON a.id = b.auction
WHERE b.event_time BETWEEN a.event_time AND a.expires
QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.event_time) = 1;

-- q10: bids with their day and minute.
CREATE STREAMING TABLE q10 AS
SELECT auction, bidder, price, event_time, date_format(event_time, 'yyyy-MM-dd') AS dt, date_format(event_time, 'HH:mm') AS hm
FROM bid;

-- q11: sessions of each bidder, which end ten seconds after a bid.
CREATE STREAMING TABLE q11 AS
SELECT bidder, count(*) AS bids, window.start AS starttime, window.end AS endtime
FROM bid GROUP BY bidder, session_window(event_time, '10 seconds');

-- q12: bids of each bidder per window, in event time.
CREATE STREAMING TABLE q12 AS
SELECT bidder, count(*) AS bids, window.start AS starttime, window.end AS endtime
FROM bid GROUP BY bidder, window(event_time, '10 seconds');

-- q13: bids with the text that a side input has for their auction.
CREATE STREAMING TABLE q13 AS
SELECT b.auction, b.bidder, b.price, b.event_time, s.value
FROM bid b JOIN side_input s ON b.auction % 100 = s.key;

-- q14: bids by time of day.
CREATE STREAMING TABLE q14 AS
SELECT auction, bidder, price * 0.908 AS price,
       CASE WHEN hour(event_time) BETWEEN 8 AND 18 THEN 'dayTime'
            WHEN hour(event_time) <= 6 OR hour(event_time) >= 20 THEN 'nightTime' ELSE 'otherTime' END AS bid_time,
       event_time
FROM bid WHERE price * 0.908 > 1000 AND price * 0.908 < 50000000;

-- q15: bids per day.
CREATE MATERIALIZED VIEW q15 AS
SELECT date_format(event_time, 'yyyy-MM-dd') AS day, count(*) AS total_bids,
       count(*) FILTER (WHERE price < 10000) AS rank1_bids,
       count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
       count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
       count(DISTINCT bidder) AS total_bidders,
       count(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders,
       count(DISTINCT auction) AS total_auctions,
       count(DISTINCT auction) FILTER (WHERE price >= 1000000) AS rank3_auctions
FROM bid GROUP BY day;

-- q16: bids per channel and day.
CREATE MATERIALIZED VIEW q16 AS
SELECT channel, date_format(event_time, 'yyyy-MM-dd') AS day, max(date_format(event_time, 'HH:mm')) AS minute,
       count(*) AS total_bids, count(*) FILTER (WHERE price < 10000) AS rank1_bids, count(DISTINCT bidder) AS total_bidders,
       count(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_auctions
FROM bid GROUP BY channel, date_format(event_time, 'yyyy-MM-dd');

-- q17: bids per auction and day.
CREATE MATERIALIZED VIEW q17 AS
SELECT auction, date_format(event_time, 'yyyy-MM-dd') AS day, count(*) AS total_bids,
       count(*) FILTER (WHERE price < 10000) AS rank1_bids, min(price) AS min_price, max(price) AS max_price,
       avg(price) AS avg_price, sum(price) AS sum_price
FROM bid GROUP BY auction, day;

-- q18: the last bid of each bidder for each auction.
CREATE MATERIALIZED VIEW q18 AS
SELECT auction, bidder, price, channel, event_time
FROM (SELECT *, row_number() OVER (PARTITION BY bidder, auction ORDER BY event_time DESC) AS rank_number FROM bid) AS bids
WHERE rank_number <= 1;

-- q19: the ten highest bids of each auction.
CREATE MATERIALIZED VIEW q19 AS
SELECT auction, bidder, price, event_time, rank_number
FROM (SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, event_time, bidder) AS rank_number FROM bid) AS bids
WHERE rank_number <= 10;

-- q20: bids with their auction.
CREATE STREAMING TABLE q20 AS
SELECT b.auction, b.bidder, b.price, b.channel, b.event_time, a.item, a.initial_bid, a.expires, a.seller
FROM bid b JOIN auction a ON b.auction = a.id
WHERE a.category = 10;

-- q21: channels as numbers.
CREATE STREAMING TABLE q21 AS
SELECT auction, bidder, price, channel,
       CASE WHEN lower(channel) = 'apple' THEN '0' WHEN lower(channel) = 'google' THEN '1'
            WHEN lower(channel) = 'facebook' THEN '2' WHEN lower(channel) = 'baidu' THEN '3'
            ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
FROM bid
WHERE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) <> '' OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu');

-- q22: the folders of an address.
CREATE STREAMING TABLE q22 AS
SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2,
       split_part(url, '/', 6) AS dir3
FROM bid;

-- q23: bids with their bidder and auction.
CREATE STREAMING TABLE q23 AS
SELECT b.auction, b.price, p.name, p.city, a.item, a.category
FROM bid b JOIN person p ON b.bidder = p.id JOIN auction a ON b.auction = a.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA');
