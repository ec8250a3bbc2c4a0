#include "lab/memory/stack.h"

#include "ir/op_def.h"
#include "lab/memory/totals.h"
#include "lab/report/columns.h"

namespace tracestep {

Table stack_table(const MemoryCell& cell) {
  const MemoryRun& run = cell.run;
  const std::size_t count = run.program.nodes.size();
  // What each node adds to the sums before it; the last entry is never read.
  std::vector<ByCategory> change(count + 1);
  ByCategory highest{};
  for (const MappedBuffer& b : run.map.buffers) {
    const auto c = static_cast<std::size_t>(b.category);
    const std::size_t from = b.first == kNoNode ? 0 : static_cast<std::size_t>(b.first);
    const std::size_t end = std::min(count, static_cast<std::size_t>(b.last) + 1);
    change[from][c] += b.bytes;
    change[end][c] -= b.bytes;
    highest[c] += b.bytes;
  }
  Table table{.name = "stack", .title = "Active memory by category, node by node"};
  table.columns = {int_column("node"), text_column("phase"), text_column("path"), text_column("op"),
                   real_column("time_ms", "at", "ms", 3, "host time since the step began")};
  for (Category c : kAllCategories) {
    if (highest[static_cast<std::size_t>(c)] == 0) continue;
    table.columns.push_back(bytes_column(std::string(name_of(c)), words_of(c)));
  }
  table.columns.push_back(bytes_column("total_bytes", "total", "predicted"));
  table.columns.push_back(bytes_column("measured_bytes", "measured"));
  ByCategory now{};
  std::size_t next = 0;
  for (const Moment& m : run.moments) {
    for (; next <= static_cast<std::size_t>(m.node); ++next) {
      for (std::size_t c = 0; c < now.size(); ++c) now[c] += change[next][c];
    }
    const Node& node = run.program.node(m.node);
    std::vector<Json> row{std::int64_t{m.node}, name_of(node.origin().phase), node.origin().path,
                          node.op->name, when(run.measured, static_cast<double>(m.time_ns) * 1e-6)};
    for (std::size_t c = 0; c < now.size(); ++c) {
      if (highest[c] > 0) row.emplace_back(now[c]);
    }
    row.emplace_back(m.predicted_bytes);
    row.push_back(when(run.measured, m.measured_bytes));
    table.add_row(std::move(row));
  }
  return table;
}

}  // namespace tracestep
