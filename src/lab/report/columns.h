// Short ways to write the columns of a table.
#pragma once

#include <string>
#include <utility>

#include "lab/report/table.h"

namespace tracestep {

inline Column text_column(std::string name, std::string title = {}, std::string description = {}) {
  return {
      .name = std::move(name), .title = std::move(title), .description = std::move(description)};
}

inline Column int_column(std::string name, std::string title = {}, std::string description = {}) {
  return {.name = std::move(name),
          .title = std::move(title),
          .kind = ColumnKind::kInt,
          .description = std::move(description)};
}

inline Column bytes_column(std::string name, std::string title = {}, std::string description = {}) {
  return {.name = std::move(name),
          .title = std::move(title),
          .kind = ColumnKind::kBytes,
          .description = std::move(description)};
}

inline Column real_column(std::string name, std::string title, std::string unit, int digits,
                          std::string description = {}) {
  return {.name = std::move(name),
          .title = std::move(title),
          .unit = std::move(unit),
          .kind = ColumnKind::kReal,
          .digits = digits,
          .description = std::move(description)};
}

inline Column data_only(Column column) {
  column.data_only = true;
  return column;
}

}  // namespace tracestep
