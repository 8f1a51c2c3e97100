# Spark's own scripts read this where SPARK_CONF_DIR says so. A home's server is given a PYTHONPATH of its own, which its
# Python workers have too: this adds the hook to it.
PYTHONPATH="$(dirname "${BASH_SOURCE[0]}")${PYTHONPATH:+:$PYTHONPATH}"
