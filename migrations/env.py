"""Runs the migrations on the connection that `tbservice.store.pg.migrate` hands over, inside its transaction."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
context.run_migrations()
