#!/bin/sh
# Runs once, when PostgreSQL's image makes its files: the ordinary role of the service, and the database that it owns.
set -eu
psql --username "$POSTGRES_USER" --dbname postgres --set ON_ERROR_STOP=1 --set password="$TBHUB_DATABASE_PASSWORD" <<'SQL'
CREATE ROLE tbhub LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE PASSWORD :'password';
CREATE DATABASE tbhub OWNER tbhub TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C';
SQL
