#!/bin/bash
# {{what}}
# The largest of them is predicted to need: {{predicted}}.
# {{source}}
# Requested: {{margins}}.
# Options given to submit.sh come before those below.
#SBATCH --job-name=tracestep-{{command}}
#SBATCH --array=0-{{last}}
#SBATCH --nodes=1
#SBATCH --ntasks={{processes}}
#SBATCH --cpus-per-task={{cpus}}
#SBATCH --gres=gpu:{{gpus}}
#SBATCH --mem={{mebibytes}}M
#SBATCH --time={{minutes}}
#SBATCH --signal=USR1@{{seconds_to_save}}
#SBATCH --output=log/%x.%A.%a.txt
#SBATCH --open-mode=append
#SBATCH --requeue

tasks=({{indices}})
task=${tasks[${SLURM_ARRAY_TASK_ID:?start it by submit.sh}]:?there is no such task}
folder=$PWD done=$PWD/cells/$task.done
[ -e "$done" ] && exit 0  # an earlier job did it
cd {{folder}} || exit
# Submitted from a step of srun, a job inherits what that says of its own tasks.
unset ${!SLURM_STEP_@} ${!OMPI_COMM_WORLD_@} PMI_RANK PMI_SIZE PMIX_RANK
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT TRACESTEP_COMM_SECRET
export OMP_NUM_THREADS={{threads}}
{{?secret}}# By this the ranks know each other.
export {{secret}}=$folder/cells/$task.secret
trap 'rm -f "${{secret}}"' EXIT
rm -f "${{secret}}"
{{make_secret}} || exit
{{?over_memory}}# Ranks on one node need no ports, to which anybody could connect.
{{?over_memory}}export OMPI_MCA_btl=${OMPI_MCA_btl:-^tcp,ofi}
case $task in
{{cases}}
esac
{{?result}}result=$folder/cells/$task.json
{{?result}}rm -f "$result"
{{run}}
status=$?
{{?result}}# With a result, 1: a check objects, and 4: out of memory. The result says which.
{{?result}}case $status in 1 | 4) [ -e "$result" ] && status=0 ;; esac
[ $status -eq 0 ] && touch "$done"  # so that it does not run again
exit $status
