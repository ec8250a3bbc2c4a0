#include "lab/explain/page.h"

#include <cmath>
#include <sstream>

#include <fmt/format.h>

#include "base/error.h"
#include "base/units.h"
#include "lab/explain/expression.h"
#include "lab/report/columns.h"

namespace tracestep {
namespace {

std::string trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(' ') - first + 1));
}

// "| a | b | c | d |"
std::array<std::string, 4> cells_of(std::string_view line) {
  std::array<std::string, 4> out;
  for (std::string& cell : out) {
    line.remove_prefix(1);
    const std::size_t end = line.find('|');
    TRACESTEP_CHECK(end != std::string_view::npos, "a line of a page has fewer than four cells");
    cell = trimmed(line.substr(0, end));
    line.remove_prefix(end);
  }
  return out;
}

// "{?name:spec}", taken apart.
struct Placeholder {
  bool is_condition = false;
  std::string name, spec;
};

Placeholder placeholder(std::string_view inside) {
  Placeholder out;
  if (inside.starts_with('?')) {
    out.is_condition = true;
    inside.remove_prefix(1);
  }
  const std::size_t colon = inside.find(':');
  out.name = inside.substr(0, colon);
  if (colon != std::string_view::npos) out.spec = inside.substr(colon + 1);
  return out;
}

// Calls `text` with what is between placeholders and `found` with each of them, in order.
template <class Text, class Found>
void scan(std::string_view line, Text&& text, Found&& found) {
  while (true) {
    const std::size_t open = line.find('{');
    text(line.substr(0, open));
    if (open == std::string_view::npos) return;
    const std::size_t close = line.find('}', open);
    TRACESTEP_CHECK(close != std::string_view::npos, "\"{}\": a brace is not closed", line);
    found(placeholder(line.substr(open + 1, close - open - 1)));
    line.remove_prefix(close + 1);
  }
}

// The list that a line speaks of; empty: none.
std::string list_of(const std::array<std::string, 4>& line) {
  std::string out;
  for (const std::string& cell : line) {
    scan(
        cell, [](std::string_view) {},
        [&](const Placeholder& p) {
          const std::size_t dot = p.name.find('.');
          if (dot != std::string::npos) out = p.name.substr(0, dot);
        });
  }
  return out;
}

double number_of(const Values::Value& value) {
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return static_cast<double>(*whole);
  const auto* real = std::get_if<double>(&value);
  TRACESTEP_CHECK(real != nullptr, "\"{}\" is no number", std::get<std::string>(value));
  return *real;
}

std::string text_of(const Values::Value& value, const std::string& spec) {
  return std::visit([&](const auto& v) { return fmt::format(fmt::runtime("{:" + spec + "}"), v); },
                    value);
}

struct Shown {
  std::string text, unit;
};

Shown shown(const Values::Value& value, const std::string& kind) {
  const auto number = [&] { return number_of(value); };
  if (kind == "bytes") return {format_bytes(static_cast<std::int64_t>(number())), "B"};
  if (kind == "ms") return {format_duration_ms(number()), "ms"};
  if (kind == "flops") return {format_flops(number()), "FLOP"};
  if (kind == "tflops") return {format_flop_rate(number() * 1e12), "TFLOP/s"};
  if (kind == "ratio") return {fmt::format("{:.4g}", number()), ""};
  if (kind == "percent") return {fmt::format("{:.4g} %", number()), "%"};
  if (kind == "count") return {plain_number(number()), ""};
  return {text_of(value, kind), ""};
}

// Values by the names that a page has for them, those of one element of a list among them.
class Filler {
 public:
  explicit Filler(const Values& values, std::string list = {}, const Values* element = nullptr)
      : values_(values), prefix_(std::move(list) + "."), element_(element) {}

  // Whether a line or a note is shown.
  bool has(std::string_view text) const {
    bool out = true;
    scan(
        text, [](std::string_view) {},
        [&](const Placeholder& p) { out = out && (!p.is_condition || find(p.name) != nullptr); });
    return out;
  }

  std::string text(std::string_view text) const {
    std::string out;
    scan(
        text, [&](std::string_view plain) { out += plain; },
        [&](const Placeholder& p) {
          if (!p.is_condition) out += shown(get(p.name), p.spec).text;
        });
    return trimmed(out);
  }

  // Text, number and unit of a cell that is one placeholder.
  std::vector<Json> value(std::string_view cell) const {
    std::vector<Json> out;
    scan(
        cell, [](std::string_view) {},
        [&](const Placeholder& p) {
          const Shown s = shown(get(p.name), p.spec);
          const double number = number_of(get(p.name));
          // Data formats have no infinity.
          out = {s.text, std::isinf(number) ? 0.0 : number, s.unit};
        });
    return out;
  }

 private:
  const Values::Value* find(std::string_view name) const {
    if (element_ == nullptr || !name.starts_with(prefix_)) return values_.find(name);
    return element_->find(name.substr(prefix_.size()));
  }
  const Values::Value& get(std::string_view name) const {
    const Values::Value* found = find(name);
    TRACESTEP_CHECK(found != nullptr, "a page names \"{}\", which is not set", name);
    return *found;
  }

  const Values& values_;
  std::string prefix_;
  const Values* element_;
};

void add_line(Table& table, const std::array<std::string, 4>& line, const Filler& filler) {
  if (!filler.has(line[0])) return;
  std::vector<Json> row = {filler.text(line[0]), filler.text(line[1]), filler.text(line[2])};
  for (Json& cell : filler.value(line[3])) row.push_back(std::move(cell));
  table.add_row(std::move(row));
}

}  // namespace

const Values::Value* Values::find(std::string_view name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? nullptr : &found->second;
}

const std::vector<Values>& Values::list(std::string_view name) const {
  static const std::vector<Values> none;
  const auto found = lists_.find(name);
  return found == lists_.end() ? none : found->second;
}

Page parse_page(std::string_view markdown) {
  Page page;
  std::istringstream in{std::string(markdown)};
  bool in_paragraph = false, in_traps = false;
  int table_lines = 0;
  for (std::string line; std::getline(in, line);) {
    const bool continues = in_paragraph && !line.empty() && !line.starts_with("- ");
    if (line.starts_with("# ")) {
      page.title = line.substr(2);
    } else if (line.starts_with('|')) {
      if (++table_lines > 2) page.lines.push_back(cells_of(line));  // after its head
    } else if (line == "Traps:") {
      in_traps = true;
    } else if (continues) {
      (in_traps ? page.traps : page.notes).back() += " " + trimmed(line);
    } else if (!line.empty()) {
      (in_traps ? page.traps : page.notes).push_back(in_traps ? line.substr(2) : line);
    }
    in_paragraph = !line.empty() && line != "Traps:";
  }
  return page;
}

Table fill(const Page& page, const Values& values) {
  Table table{
      .name = "explain",
      .columns = {text_column("what"), text_column("formula"),
                  text_column("numbers", "with numbers"), text_column("shown", "value"),
                  data_only(real_column("value", "", "", -1)), data_only(text_column("unit"))}};
  for (std::size_t i = 0; i < page.lines.size();) {
    const std::string list = list_of(page.lines[i]);
    std::size_t end = i + 1;
    if (list.empty()) {
      add_line(table, page.lines[i], Filler(values));
    } else {
      while (end < page.lines.size() && list_of(page.lines[end]) == list) ++end;
      for (const Values& element : values.list(list)) {
        for (std::size_t k = i; k < end; ++k) {
          add_line(table, page.lines[k], Filler(values, list, &element));
        }
      }
    }
    i = end;
  }
  const Filler filler(values);
  for (const std::string& note : page.notes) {
    if (filler.has(note)) table.notes.push_back(filler.text(note));
  }
  return table;
}

}  // namespace tracestep
