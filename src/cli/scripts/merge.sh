#!/bin/bash
# The result of: {{command}}
#SBATCH --job-name=tracestep-merge
#SBATCH --ntasks=1
#SBATCH --mem=2G
#SBATCH --time=10
#SBATCH --output=log/%x.%j.txt

folder=$PWD
cd {{folder}} || exit
exec {{merge}}
