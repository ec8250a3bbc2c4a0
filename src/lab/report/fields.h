// A table's columns, each with the function that reads its cell from a record. So no order of
// values has to agree with an order of columns elsewhere.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lab/report/columns.h"

namespace tracestep {

template <class Record>
struct Field {
  Column column;
  std::function<Json(const Record& record)> get;  // may be a member pointer
};

template <class Record>
class Fields {
 public:
  Fields(std::initializer_list<Field<Record>> fields) : fields_(fields) {}

  Fields& add(Column column, std::function<Json(const Record& record)> get) {
    fields_.push_back({std::move(column), std::move(get)});
    return *this;
  }
  Fields& add(const Fields& more) {
    fields_.insert(fields_.end(), more.fields_.begin(), more.fields_.end());
    return *this;
  }
  // Takes over the fields of a part of the record. `part` is a member pointer or a function that
  // returns the part, an optional of it, or its address. If the part is missing, its cells are
  // empty.
  template <class Part, class PartOf>
  Fields& add(const Fields<Part>& fields, PartOf part) {
    for (const Field<Part>& field : fields) {
      add(field.column, [get = field.get, part](const Record& record) {
        const auto& given = std::invoke(part, record);
        const Part* found = address<Part>(given);
        return found == nullptr ? Json() : get(*found);
      });
    }
    return *this;
  }

  auto begin() const { return fields_.begin(); }
  auto end() const { return fields_.end(); }

  std::vector<Column> columns() const {
    std::vector<Column> out;
    for (const Field<Record>& field : fields_) out.push_back(field.column);
    return out;
  }
  std::vector<Json> row(const Record& record) const {
    std::vector<Json> out;
    for (const Field<Record>& field : fields_) out.push_back(field.get(record));
    return out;
  }

 private:
  template <class Part>
  static const Part* address(const Part* part) {
    return part;
  }
  template <class Part>
  static const Part* address(const Part& part) {
    return &part;
  }
  template <class Part>
  static const Part* address(const std::optional<Part>& part) {
    return part ? &*part : nullptr;
  }

  std::vector<Field<Record>> fields_;
};

// Makes a table with a row for each of `records`.
template <class Record, class Records>
Table table_of(std::string name, std::string title, const Fields<Record>& fields,
               const Records& records) {
  Table table{.name = std::move(name), .title = std::move(title), .columns = fields.columns()};
  for (const Record& record : records) table.add_row(fields.row(record));
  return table;
}

}  // namespace tracestep
