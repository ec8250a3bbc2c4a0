// Reads the folder of a captured module. Everything in it may be hostile: the program is parsed,
// which types every node anew, and may hold only what a forward program holds; the index may name
// only what the program has.
#include <algorithm>
#include <cmath>
#include <mutex>
#include <span>

#include "base/error.h"
#include "base/hash.h"
#include "base/input_file.h"
#include "base/json.h"
#include "base/utf8.h"
#include "captured/captured_model.h"
#include "ir/layer_path.h"
#include "ir/op_def.h"
#include "ir/parse.h"
#include "ops/functions.h"

namespace tracestep {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kFormat = 1;
constexpr std::uint64_t kMaxIndexBytes = std::uint64_t{16} << 20;
constexpr std::size_t kMaxNameBytes = 200;
constexpr std::int64_t kMaxHigh = std::int64_t{1} << 31;
// Of all values together: what passes add to them stays far below what 64 bits count.
constexpr double kMaxProgramValueBytes = 0x1p56;

std::string file_of(const fs::path& folder, const char* name) {
  return (folder / name).string();
}

// --- the program ------------------------------------------------------------------------------

bool is_of_forward(const OpDef& op) {
  switch (op.kernel_class) {
    case KernelClass::kOptimizer:
    case KernelClass::kCollective:
    case KernelClass::kFused: return false;
    default: return !op.is_assembly();
  }
}

void check_leaves(const Program& program, const std::string& where) {
  for (ValueId id : program.leaves) {
    const Value& leaf = program.value(id);
    if (leaf.leaf == LeafKind::kState || leaf.role != Role::kNone) {
      fail_input(where, "{} is a state; a captured program has inputs, parameters and constants",
                 leaf.name);
    }
    if (leaf.memory != Memory::kDevice || is_float8(leaf.type.dtype)) {
      fail_input(where, "{} is no leaf of a captured program", leaf.name);
    }
    if (leaf.leaf == LeafKind::kParameter && !is_floating(leaf.type.dtype)) {
      fail_input(where, "parameter {} is {}, which is not floating", leaf.name, leaf.type.str());
    }
    for (const std::string_view taken : {"lr", "step_size"}) {
      if (leaf.name != taken) continue;
      fail_input(where, "a leaf is called {}, as an input of every optimizer is", taken);
    }
  }
}

void check_nodes(const Program& program, const std::string& where) {
  for (const Node& node : program.nodes) {
    const Origin& origin = node.origin();
    const auto fail = [&](std::string_view why) {
      fail_input(where, "{} of {} is {}", node.op->name,
                 origin.path.empty() ? "the program" : origin.path, why);
    };
    if (!is_of_forward(*node.op)) fail("no op of a forward program");
    const bool is_forward = std::ranges::all_of(
        node.origins, [](const Origin& o) { return o.phase == Phase::kForward; });
    if (!is_forward || node.epoch != 0) fail("not of the forward phase");
    const bool has_role = std::ranges::any_of(
        node.outputs, [&](ValueId id) { return program.value(id).role != Role::kNone; });
    if (has_role) fail("a value with a role, which only a step has");
  }
}

void check_outputs(const Program& program, const std::string& where) {
  if (!program.updates.empty()) fail_input(where, "it updates a leaf; a forward program does not");
  for (const Output& output : program.outputs) {
    if (output.name == kLossOutput || output.name == kLogitsOutput) continue;
    fail_input(where, "output \"{}\" is neither loss nor logits", printable(output.name));
  }
  const ValueId loss = program.find_output(kLossOutput), logits = program.find_output(kLogitsOutput);
  if (loss == kNoValue) fail_input(where, "there is no output \"loss\"");
  const Type& type = program.type(loss);
  if (!type.shape.empty() || !is_floating(type.dtype)) {
    fail_input(where, "the loss is {}, not one floating number", type.str());
  }
  if (logits != kNoValue && !is_floating(program.type(logits).dtype)) {
    fail_input(where, "the logits are {}", program.type(logits).str());
  }
}

void check_size(const Program& program, const std::string& where) {
  double bytes = 0.0;
  for (const Value& value : program.values) bytes += static_cast<double>(value.type.bytes());
  if (bytes > kMaxProgramValueBytes) fail_input(where, "its values have {:.3g} bytes", bytes);
}

Program program_of(const std::string& text, const std::string& where) {
  ops::register_all();
  Program out = parse_program(text, where);
  check_leaves(out, where);
  check_nodes(out, where);
  check_outputs(out, where);
  check_size(out, where);
  return out;
}

// --- the index --------------------------------------------------------------------------------

class IndexReader {
 public:
  IndexReader(CapturedModel& out, const std::string& where) : out_(out), where_(where) {}

  void read(const Json& index) {
    if (!index.is_object()) fail("it is no object");
    const std::int64_t format = integer(index, "format");
    if (format != kFormat) {
      throw Error(ErrorCode::kInput, where_,
                  fmt::format("its format is {}; this version reads {}", format, kFormat),
                  "capture the module again with the tracestep.capture of this version");
    }
    out_.name = name_of(member(index, "module"), "module");
    if (out_.name.empty()) fail("the module has no name");
    if (const Json* torch = given(index, "torch")) out_.torch = name_of(*torch, "torch");
    inputs(member(index, "inputs"));
    if (const Json* all = given(index, "tied")) tied(*all);
    if (const Json* all = given(index, "frozen")) constants(*all, "frozen", out_.frozen);
    if (const Json* all = given(index, "buffers")) constants(*all, "buffers", out_.buffers);
    if (const Json* found = given(index, "check")) check(*found);
    if (const Json* all = given(index, "patterns")) patterns(*all);
    out_.has_groups = given(index, "optimizer_groups") != nullptr;
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    fail_input(where_, "{}", fmt::format(format, std::forward<Args>(args)...));
  }

  // A member that is there and not null; nullptr: it is not.
  static const Json* given(const Json& object, std::string_view key) {
    const Json* found = object.find(key);
    return found == nullptr || found->is_null() ? nullptr : found;
  }

  const Json& member(const Json& object, std::string_view key) const {
    const Json* found = object.find(key);
    if (found == nullptr) fail("\"{}\" is missing", key);
    return *found;
  }

  std::int64_t integer(const Json& object, std::string_view key) const {
    const Json& value = member(object, key);
    if (!value.is_int()) fail("\"{}\" is no whole number", key);
    return value.as_int();
  }

  std::string name_of(const Json& value, std::string_view key) const {
    if (!value.is_string()) fail("\"{}\" is no text", key);
    const std::string& text = value.as_string();
    if (text.size() > kMaxNameBytes) fail("\"{}\" is longer than {} bytes", key, kMaxNameBytes);
    return printable(text);
  }

  ValueId leaf(const std::string& name, std::string_view key) const {
    const ValueId id = out_.program.find_leaf(name);
    if (id == kNoValue) fail("\"{}\" names {}, which the program does not have", key, name);
    return id;
  }

  void inputs(const Json& all) {
    if (!all.is_array()) fail("\"inputs\" is no list");
    for (const Json& one : all.items()) {
      if (!one.is_object()) fail("an input is no object");
      input(one);
    }
    for (ValueId id : out_.program.leaves) {
      const Value& value = out_.program.value(id);
      if (value.leaf == LeafKind::kInput && out_.find_input(value.name) == nullptr) {
        fail("input {} of the program is missing", value.name);
      }
    }
  }

  void input(const Json& one) {
    CapturedInput out{.name = name_of(member(one, "name"), "name")};
    const Value& value = out_.program.value(leaf(out.name, "inputs"));
    if (value.leaf != LeafKind::kInput) fail("{} is no input of the program", out.name);
    if (out_.find_input(out.name) != nullptr) fail("input {} is there twice", out.name);
    const std::string role = name_of(member(one, "role"), "role");
    if (role == "tokens" || role == "targets") {
      out.role = role == "tokens" ? InputRole::kTokens : InputRole::kTargets;
      out.high = integer(one, "high");
      if (out.high < 1 || out.high > kMaxHigh) fail("{} has {} values", out.name, out.high);
      if (value.type.dtype != DType::kI64) {
        fail("{} is {}; {} are i64", out.name, value.type.str(), role);
      }
    } else if (role != "given") {
      fail("input {} has the role \"{}\"; there are tokens, targets and given", out.name, role);
    }
    out_.inputs.push_back(std::move(out));
  }

  void tied(const Json& all) {
    if (!all.is_object()) fail("\"tied\" is no object");
    for (const auto& [other, to] : all.members()) {
      const std::string name = name_of(to, "tied");
      const Value& value = out_.program.value(leaf(name, "tied"));
      if (value.leaf == LeafKind::kInput) fail("{} is tied to input {}", printable(other), name);
      if (out_.program.find_leaf(other) != kNoValue) {
        fail("{} is tied to {} and a leaf itself", printable(other), name);
      }
      if (other.empty() || other.size() > kMaxNameBytes) fail("\"tied\" has a name of {} bytes", other.size());
      out_.tied[other] = name;
    }
  }

  void constants(const Json& all, std::string_view key, std::set<std::string>& out) {
    if (!all.is_array()) fail("\"{}\" is no list", key);
    for (const Json& one : all.items()) {
      const std::string name = name_of(one, key);
      if (out_.program.value(leaf(name, key)).leaf != LeafKind::kConstant) {
        fail("{} is in \"{}\" and no constant of the program", name, key);
      }
      out.insert(name);
    }
  }

  void check(const Json& found) {
    if (!found.is_object()) fail("\"check\" is no object");
    const auto real = [&](std::string_view key) {
      const Json& value = member(found, key);
      if (!value.is_number() || !(value.as_double() >= 0.0)) fail("\"{}\" is no difference", key);
      return value.as_double();
    };
    CaptureCheck out{real("loss"), real("gradients"), {}};
    if (const Json* worst = given(found, "worst")) out.worst = name_of(*worst, "worst");
    out_.check = std::move(out);
  }

  void patterns(const Json& all) {
    if (!all.is_object()) fail("\"patterns\" is no object");
    for (const auto& [name, count] : all.members()) {
      if (!count.is_int() || count.as_int() < 0) fail("\"patterns\" counts {}", printable(name));
      out_.patterns[printable(name)] = count.as_int();
    }
  }

  CapturedModel& out_;
  const std::string& where_;
};

// Ids are below the rows of the tables that they are looked up in, and the logits of their losses.
void check_vocabularies(const CapturedModel& model, const std::string& where) {
  const Program& program = model.program;
  const auto input_of = [&](ValueId id) {
    return model.find_input(program.value(program.value(id).layout.base).name);
  };
  for (const Node& node : program.nodes) {
    const bool is_lookup = node.op->name == "gather" || node.op->name == "cross_entropy";
    const CapturedInput* input = is_lookup ? input_of(node.inputs[1]) : nullptr;
    if (input == nullptr || input->role == InputRole::kGiven) continue;
    const Shape& from = program.type(node.inputs[0]).shape;
    const bool is_table = node.op->name == "gather";
    if (input->high <= from[is_table ? 0 : 1]) continue;
    if (is_table) {
      fail_input(where, "{} looks up {} {} in a table of {}", node.origin().path, input->high,
                 input->role == InputRole::kTokens ? "tokens" : "targets", from[0]);
    }
    fail_input(where, "{} has {} targets among {} logits", node.origin().path, input->high, from[1]);
  }
}

// --- what follows from both -------------------------------------------------------------------

// Counts the blocks, and finds the parts that at least half of them have.
void find_blocks(CapturedModel& model) {
  struct Part {
    std::set<std::string_view> blocks;
    std::int64_t nodes = 0;
  };
  std::set<std::string_view> blocks;
  std::map<std::string_view, Part> parts;
  for (const Node& node : model.program.nodes) {
    const std::string_view path = node.origin().path, block = layer_of(path);
    if (block.empty()) continue;
    blocks.insert(block);
    if (block == path) continue;
    const std::string_view inside = path.substr(block.size() + 1);
    Part& part = parts[inside.substr(0, inside.find('.'))];
    part.blocks.insert(block);
    ++part.nodes;
  }
  model.blocks = std::ssize(blocks);
  std::vector<std::pair<std::int64_t, std::string_view>> found;
  for (const auto& [name, part] : parts) {
    if (2 * part.blocks.size() >= blocks.size()) found.emplace_back(part.nodes, name);
  }
  std::ranges::sort(found);
  for (const auto& [nodes, name] : found) model.block_parts.emplace_back(name);
}

void measure(CapturedModel& model) {
  const Program& program = model.program;
  const auto shape_of = [&](const CapturedInput& input) {
    return program.type(program.find_leaf(input.name)).shape;
  };
  const auto tokens = std::ranges::find_if(model.inputs, [&](const CapturedInput& input) {
    return input.role == InputRole::kTokens && shape_of(input).rank() == 2;
  });
  if (tokens != model.inputs.end()) {
    model.batch = std::max<std::int64_t>(1, shape_of(*tokens)[0]);
    model.context = std::max<std::int64_t>(1, shape_of(*tokens)[1]);
  } else if (!model.inputs.empty() && !shape_of(model.inputs.front()).empty()) {
    model.batch = std::max<std::int64_t>(1, shape_of(model.inputs.front())[0]);
  }
  for (const CapturedInput& input : model.inputs) model.vocab = std::max(model.vocab, input.high);
  find_blocks(model);
  std::map<DType, std::int64_t> elements;
  for (ValueId id : program.leaves) {
    const Value& leaf = program.value(id);
    if (leaf.leaf == LeafKind::kParameter) elements[leaf.type.dtype] += leaf.type.count();
  }
  const auto most = std::ranges::max_element(elements, {}, [](const auto& e) { return e.second; });
  if (most != elements.end()) model.weights = most->first;
  model.is_float64 = model.weights == DType::kF64;
  if (model.is_float64) model.weights = DType::kF32;  // no precision has float64 parameters
}

std::string digest_of(const std::string& program, const std::string& index) {
  const std::string both = program + '\n' + index;
  return hash_text(std::as_bytes(std::span(both)));
}

}  // namespace

CapturedModel captured_from(const std::string& program, const std::string& index,
                            const fs::path& folder) {
  CapturedModel out{.folder = folder};
  const std::string where = file_of(folder, kCapturedIndex);
  out.program = program_of(program, file_of(folder, kCapturedProgram));
  IndexReader(out, where).read(Json::parse(index, where));
  check_vocabularies(out, where);
  out.digest = digest_of(program, index);
  measure(out);
  return out;
}

std::shared_ptr<const CapturedModel> captured_at(const fs::path& folder) {
  for (const char* name : {kCapturedProgram, kCapturedIndex}) {
    std::error_code none;
    if (fs::exists(folder / name, none)) continue;
    throw Error(ErrorCode::kInput, folder.string(),
                fmt::format("it has no {}, so it is no captured module", name),
                "tracestep.capture(module, inputs, folder=…) in Python writes such a folder");
  }
  const std::string program =
      read_text_file(folder / kCapturedProgram, "program", kMaxProgramBytes);
  const std::string index = read_text_file(folder / kCapturedIndex, "program", kMaxIndexBytes);
  // A command asks for the same folder again and again: for a grid, for keys of rows.
  static std::mutex mutex;
  static std::map<std::pair<fs::path, std::string>, std::shared_ptr<const CapturedModel>> all;
  const std::lock_guard lock(mutex);
  auto& known = all[{folder, digest_of(program, index)}];
  if (known == nullptr) {
    known = std::make_shared<const CapturedModel>(captured_from(program, index, folder));
  }
  return known;
}

}  // namespace tracestep
