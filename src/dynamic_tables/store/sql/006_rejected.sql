-- Which strategies a refresh did not take, and why, beside what they would have cost.

ALTER TABLE refresh_history ADD COLUMN rejected TEXT;
