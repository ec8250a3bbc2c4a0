#include "lab/memory/tables.h"

#include "ir/op_def.h"
#include "lab/memory/totals.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"

namespace tracestep {

Table stack_table(const MemoryCell& cell) {
  const MemoryRun& run = cell.run;
  const std::size_t count = run.program.nodes.size();
  // Each node's entry holds its change of the sums before it; the last entry is never read.
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
  struct Row {
    const Moment& moment;
    const Node& node;
    ByCategory bytes;
  };
  using R = const Row&;
  Fields<Row> fields = {{col::node, [](R r) { return std::int64_t{r.moment.node}; }},
                        {col::phase, [](R r) { return name_of(r.node.origin().phase); }},
                        {col::path, [](R r) { return r.node.origin().path; }},
                        {col::op, [](R r) { return r.node.op->name; }},
                        {col::time_ms("host time since the step began"), [&](R r) {
                           return when(run.measured, static_cast<double>(r.moment.time_ns) * 1e-6);
                         }}};
  for (Category c : kAll<Category>) {
    const auto i = static_cast<std::size_t>(c);
    if (highest[i] == 0) continue;
    fields.add(bytes_column(std::string(name_of(c)), words_of(c)), [i](R r) { return r.bytes[i]; });
  }
  fields.add(col::total_bytes("predicted"), [](R r) { return r.moment.predicted_bytes; });
  fields.add(col::measured_bytes, [&](R r) { return when(run.measured, r.moment.measured_bytes); });
  std::vector<Row> rows;
  ByCategory now{};
  std::size_t next = 0;
  for (const Moment& m : run.moments) {
    for (; next <= static_cast<std::size_t>(m.node); ++next) {
      for (std::size_t c = 0; c < now.size(); ++c) now[c] += change[next][c];
    }
    rows.push_back({m, run.program.node(m.node), now});
  }
  return table_of("stack", "Active memory by category, node by node", fields, rows);
}

}  // namespace tracestep
