"""Run the migrations in the transaction of the connection that `db/migrate.py` passes."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
context.run_migrations()
