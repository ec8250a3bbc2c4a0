// `--sbatch DIR`, an option of every command that measures: instead of running, the command writes
// job scripts for Slurm. A list on the command line becomes an array of tasks, one for each value;
// a last job puts their results together (docs/slurm.md).
#pragma once

#include "cli/command.h"

namespace tracestep::cli {

// Adds the option to a command that has a plan.
void add_sbatch(Command& command);

}  // namespace tracestep::cli
