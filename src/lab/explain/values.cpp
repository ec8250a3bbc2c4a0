#include "lab/explain/values.h"

#include <cctype>
#include <optional>

#include <fmt/format.h>

#include "lab/pages/figures.h"

namespace tracestep {
namespace {

std::optional<Quantity> number_of(const Values::Value* value, std::string_view name) {
  if (value == nullptr || std::holds_alternative<std::string>(*value)) return std::nullopt;
  const auto* whole = std::get_if<std::int64_t>(value);
  const double number = whole != nullptr ? static_cast<double>(*whole) : std::get<double>(*value);
  return Quantity{number, number, number, std::string(name)};
}

// Returns the name of the list to which a figure refers, as in "list.name"; empty if to none.
std::string list_in(const pages::Figure& figure, const Values& values) {
  for (const std::string* text : {&figure.formula, &figure.what}) {
    for (std::size_t dot = text->find('.'); dot != std::string::npos;
         dot = text->find('.', dot + 1)) {
      std::size_t begin = dot;
      while (begin > 0 && std::isalpha(static_cast<unsigned char>((*text)[begin - 1])) != 0)
        --begin;
      std::string name = text->substr(begin, dot - begin);
      if (!values.list(name).empty()) return name;
    }
  }
  return {};
}

// Looks up the names in a page's formulas: set values, those of a list's element, earlier figures.
class Names {
 public:
  explicit Names(const Values& values) : values_(values) {
    scope_ = {.figure = [this](std::string_view name) { return figure(name); },
              .rows = {},
              .look_up = {},
              .member = [this](std::string_view list,
                               std::string_view name) { return member(list, name); },
              .word = [this](std::string_view name) { return word(name); }};
  }
  const Scope& scope() const { return scope_; }
  void stand_for(std::string list, const Values* element) {
    list_ = std::move(list);
    element_ = element;
  }
  void know(const std::string& name, const Quantity& value) { known_[name] = value; }

 private:
  std::optional<Quantity> figure(std::string_view name) const {
    if (const auto found = known_.find(name); found != known_.end()) return found->second;
    auto out = number_of(values_.find(name), name);
    require(out.has_value(), "a value that it names is not set");
    return out;
  }
  std::optional<Quantity> member(std::string_view list, std::string_view name) const {
    require(element_ != nullptr && list == list_, "a list that it names is empty");
    auto out = number_of(element_->find(name), name);
    if (out) return out;
    const auto found = known_.find(fmt::format("{}.{}", list, name));
    require(found != known_.end(), "a value that it names is not set");
    return found->second;
  }
  std::optional<std::string> word(std::string_view name) const {
    const std::size_t dot = name.find('.');
    const bool is_member = dot != std::string_view::npos && element_ != nullptr;
    const Values::Value* found =
        is_member ? element_->find(name.substr(dot + 1)) : values_.find(name);
    if (found == nullptr || !std::holds_alternative<std::string>(*found)) return std::nullopt;
    return std::get<std::string>(*found);
  }

  const Values& values_;
  std::map<std::string, Quantity, std::less<>> known_;
  std::string list_;
  const Values* element_ = nullptr;
  Scope scope_;
};

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

Table fill(const pages::Page& page, const Values& values) {
  Table table = pages::figure_table("explain");
  Names names(values);
  const auto add = [&](const pages::Figure& figure) {
    try {
      names.know(figure.name, pages::add_figure(table, figure, names.scope()));
    } catch (const Unsupported&) {  // a value that this row, or this model, has not
    }
  };
  for (std::size_t i = 0; i < page.figures.size();) {
    const std::string list = list_in(page.figures[i], values);
    std::size_t end = i + 1;
    if (list.empty()) add(page.figures[i]);
    // Lines of one list stand together, for one element after the other.
    while (!list.empty() && end < page.figures.size() &&
           list_in(page.figures[end], values) == list) {
      ++end;
    }
    for (const Values& element : values.list(list)) {
      names.stand_for(list, &element);
      for (std::size_t k = i; k < end; ++k) add(page.figures[k]);
    }
    names.stand_for({}, nullptr);
    i = end;
  }
  for (const auto& [label, text] : page.labelled) {
    if (label != "Note") continue;
    try {
      table.notes.push_back(pages::filled(text, names.scope()));
    } catch (const Unsupported&) {  // its value is not there
    }
  }
  return table;
}

}  // namespace tracestep
