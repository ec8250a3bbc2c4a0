#include "lab/compare/declared.h"

#include "lab/attention/tables.h"
#include "lab/compile/tables.h"
#include "lab/memory/tables.h"
#include "lab/precision/tables.h"
#include "lab/profile/tables.h"

namespace tracestep {
namespace {

Table named(std::string name, std::vector<Column> columns) {
  return {.name = std::move(name), .columns = std::move(columns)};
}

}  // namespace

const std::vector<Table>& declared_tables() {
  static const std::vector<Table> all = {
      named("cells", cell_columns()),
      attention_table({}, {}),
      peak_table({}),
      named("memory_grid", peak_table({}).columns),
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
      named("norms", norm_columns()),
  };
  return all;
}

}  // namespace tracestep
