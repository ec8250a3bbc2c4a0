#include "lab/memory/charts.h"

namespace tracestep {

Chart timeline_chart(std::string table) {
  return {.kind = "timeline", .title = "Active memory through the step", .table = std::move(table)};
}

Chart saved_chart(std::string table) {
  return {.kind = "bars",
          .title = "Saved for backward",
          .table = std::move(table),
          .options = Json::Object{{"label", Json::Array{"component", "op"}},
                                  {"values", Json::Array{"bytes"}},
                                  {"skip", Json::Array{"total"}},
                                  {"top", 14}}};
}

}  // namespace tracestep
