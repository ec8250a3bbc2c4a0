#include "lab/compare/declared.h"

#include "lab/attention/tables.h"
#include "lab/compile/tables.h"
#include "lab/memory/tables.h"
#include "lab/precision/tables.h"
#include "lab/profile/tables.h"

namespace tracestep {

const std::vector<Table>& declared_tables() {
  static const std::vector<Table> all = {
      {.name = "cells", .columns = cell_columns()},
      attention_table({}, {}),
      peak_table({}),
      {.name = "memory_grid", .columns = peak_table({}).columns},
      buffer_table({}),
      category_table({}),
      saved_by_op_table({}),
      phase_table({}),
      pass_table({}),
      matrix_table({}),
      kernel_table({}),
      precision_step_table({}),
      way_table({}),
      ladder_table({}),
      way_attention_table({}),
      accumulation_table(),
      {.name = "norms", .columns = norm_columns()},
  };
  return all;
}

}  // namespace tracestep
