"""Topologies as people write them, each a script that runs, and input for all of them in `data`.

word_count: counts per word, in any number of partitions. revenue: orders joined with customers, summed per country and
minute. trucks: trips as session windows, and an alarm by the wall clock when a truck falls silent. payments: fraud
rules over sliding windows. database_changes: inserts, updates and deletes kept as tables, joined by foreign key.
error_rates: log lines, one final rate per service and minute.
"""
