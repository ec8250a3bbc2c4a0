#include "ir/print.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "ir/op_def.h"

namespace tracestep {
namespace {

// Returns the text in quotes, with its quotes and backslashes escaped.
std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

std::string real_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

class Printer {
 public:
  Printer(const Program& program, const PrintOptions& options)
      : program_(program), options_(options), names_(program.values.size()) {
    for (ValueId id : program.leaves) {
      names_[static_cast<std::size_t>(id)] = "%" + program.value(id).name;
    }
    int next = 0;
    for (const Node& node : program.nodes) {
      for (ValueId id : node.outputs) {
        names_[static_cast<std::size_t>(id)] = fmt::format("%{}", next++);
      }
    }
  }

  std::string run() {
    out_ = fmt::format("program {} {{\n", in_quotes(program_.name));
    for (ValueId id : program_.leaves) leaf(program_.value(id));
    for (const Node& node : program_.nodes) this->node(node);
    for (const Update& u : program_.updates) {
      out_ += fmt::format("  update {} = {}\n", name(u.leaf), name(u.value));
    }
    for (const Output& o : program_.outputs) {
      out_ += fmt::format("  output {} = {}\n", in_quotes(o.name), name(o.value));
    }
    return out_ + "}\n";
  }

 private:
  const std::string& name(ValueId id) const { return names_[static_cast<std::size_t>(id)]; }

  static std::string type_of(const Value& value) {
    std::string text = value.type.str();
    if (value.role != Role::kNone) text += fmt::format(" !{}", name_of(value.role));
    return text;
  }

  void leaf(const Value& value) {
    out_ += fmt::format("  {} %{} : {}", name_of(value.leaf), value.name, type_of(value));
    const BlockPart& part = value.part;
    if (!part.block.empty()) {
      out_ += fmt::format(" in {} at {} of {}", in_quotes(part.block), part.offset, part.count);
    }
    if (value.memory == Memory::kHost) out_ += " on host";
    out_ += '\n';
  }

  void node(const Node& node) {
    std::vector<std::string> results, types, operands;
    for (ValueId id : node.outputs) {
      results.push_back(name(id));
      types.push_back(type_of(program_.value(id)));
    }
    for (ValueId id : node.inputs) operands.push_back(name(id));
    out_ += fmt::format("  {} : {} = {}({})", fmt::join(results, ", "), fmt::join(types, ", "),
                        node.op->name, fmt::join(operands, ", "));
    attributes(node);
    if (node.epoch != 0) out_ += fmt::format(" #{}", node.epoch);
    if (options_.origins) origins(node);
    out_ += '\n';
  }

  void attributes(const Node& node) {
    std::vector<std::string> parts;
    for (const auto& [key, value] : node.attrs.entries()) {
      const AttrDef* def = node.op->find_attr(key);
      if (def != nullptr && def->fallback && *def->fallback == value) continue;
      parts.push_back(fmt::format("{}={}", key, print(value, options_)));
    }
    if (!parts.empty()) out_ += fmt::format(" {{{}}}", fmt::join(parts, ", "));
  }

  void origins(const Node& node) {
    std::string_view separator = " @ ";
    for (const Origin& origin : node.origins) {
      out_ += fmt::format("{}{} {}", separator, origin.path.empty() ? "." : origin.path,
                          name_of(origin.phase));
      if (options_.locations && !origin.file.empty()) {
        out_ += fmt::format(" {}:{}", origin.file, origin.line);
      }
      separator = " | ";
    }
    if (!node.made_by.empty()) out_ += " by " + node.made_by;
  }

  const Program& program_;
  PrintOptions options_;
  std::vector<std::string> names_;
  std::string out_;
};

}  // namespace

std::string print(const Program& program, const PrintOptions& options) {
  return Printer(program, options).run();
}

std::string print(const AttrValue& value, const PrintOptions& options) {
  struct Visitor {
    const PrintOptions& options;
    std::string operator()(std::int64_t v) const { return fmt::format("{}", v); }
    std::string operator()(double v) const { return real_text(v); }
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(const std::string& v) const { return in_quotes(v); }
    std::string operator()(DType v) const { return std::string(name_of(v)); }
    std::string operator()(const Dims& v) const { return v.str(); }
    std::string operator()(const Region& v) const { return print(*v, options); }
  };
  return std::visit(Visitor{options}, value);
}

}  // namespace tracestep
