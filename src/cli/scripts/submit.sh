#!/bin/bash
# usage: submit.sh [OPTION OF sbatch]..., such as --partition=gpu --exclusive
# Again after a failure: tasks that are done end at once, the others go on.
CDPATH= cd -- "$(dirname -- "$0")" || exit
{{arrays}}
{{?after}}# Also after a task that failed: the merge says which results are missing.
sbatch --parsable "$@" --dependency=afterany{{after}} merge.sh
