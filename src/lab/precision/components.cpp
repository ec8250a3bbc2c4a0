// Where a precision gains: each component's time beside that in float32.
#include "lab/measure/run_columns.h"
#include "lab/measure/validity.h"
#include "lab/precision/tables.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"
#include "lab/time/tables.h"
#include "spec/fields.h"

namespace tracestep {
namespace {

struct ComponentRow {
  const RunSpec *step, *fp32_step;
  std::string component;
  PhaseTimes own, fp32;

  static double forward(const PhaseTimes& t) {
    return t[static_cast<std::size_t>(Phase::kForward)];
  }
  static double backward(const PhaseTimes& t) {
    return t[static_cast<std::size_t>(Phase::kBackward)] +
           t[static_cast<std::size_t>(Phase::kRecompute)];
  }
};

void add_phase(Fields<ComponentRow>& fields, const std::string& phase,
               double (*ms)(const PhaseTimes&)) {
  using R = const ComponentRow&;
  fields
      .add(real_column(phase + "_ms", phase, "ms", 4, "kernels of a recorded step, all layers"),
           [ms](R r) { return positive_or_null(ms(r.own)); })
      .add(real_column("fp32_" + phase + "_ms", phase + " fp32", "ms", 4),
           [ms](R r) { return positive_or_null(ms(r.fp32)); })
      .add(real_column(phase + "_ratio", "fp32 / this", "x", 2), [ms](R r) {
        const bool has_both = ms(r.own) > 0 && ms(r.fp32) > 0;
        return has_both ? Json(ms(r.fp32) / ms(r.own)) : Json();
      });
}

Fields<ComponentRow> component_fields() {
  Fields<ComponentRow> out{};
  for (const Field<RunSpec>& axis : axis_columns()) {
    out.add(axis.column, [axis](const ComponentRow& r) {
      if (axis.column.name != "cell") return axis.get(*r.step);
      return Json(Json::Array{key_of(*r.fp32_step), key_of(*r.step)});
    });
  }
  out.add(col::component, &ComponentRow::component);
  add_phase(out, "forward", ComponentRow::forward);
  add_phase(out, "backward", ComponentRow::backward);
  return out.add(verdict_column(), [](const ComponentRow&) { return Json(); });  // of its steps
}

}  // namespace

Table precision_component_table(std::span<const PrecisionCell> cells) {
  std::vector<ComponentRow> rows;
  for (const PrecisionCell& cell : cells) {
    const CellResult* base = in_fp32(cells, cell.result);
    if (base == nullptr || base == &cell.result || cell.result.spans.empty()) continue;
    const ComponentTimes own = component_times(cell.result), fp32 = component_times(*base);
    for (const auto& [component, times] : own) {
      const auto found = fp32.find(component);
      rows.push_back({&cell.result.spec.step, &base->spec.step, component, times,
                      found == fp32.end() ? PhaseTimes{} : found->second});
    }
  }
  Table table =
      table_of("precision_components", "Each component beside float32", component_fields(), rows);
  show_unusual(table);
  return table;
}

}  // namespace tracestep
