// Charts of the tables of one step. `table`: the name that the table has in the report.
#pragma once

#include <string>

#include "lab/report/chart/chart.h"

namespace tracestep {

Chart timeline_chart(std::string table);  // of stack_table()
Chart saved_chart(std::string table);     // of saved_by_op_table()

}  // namespace tracestep
