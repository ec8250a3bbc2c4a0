// Reads the folder of a captured module, and derives what follows from its program and its index
// together.
#include <algorithm>
#include <mutex>
#include <span>

#include "base/error.h"
#include "base/hash.h"
#include "base/input_file.h"
#include "captured/capture_index.h"
#include "captured/captured_model.h"
#include "captured/forward_program.h"
#include "ir/layer_path.h"
#include "ir/op_def.h"
#include "ir/parse.h"

namespace tracestep {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxIndexBytes = std::uint64_t{16} << 20;

std::string file_of(const fs::path& folder, const char* name) {
  return (folder / name).string();
}

// Throws unless the ids of inputs are below the number of table rows or logits that they index.
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
    fail_input(where, "{} has {} targets among {} logits", node.origin().path, input->high,
               from[1]);
  }
}

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
  CapturedModel out;
  out.folder = folder;
  const std::string where = file_of(folder, kCapturedIndex);
  out.program = read_forward_program(program, file_of(folder, kCapturedProgram));
  read_capture_index(index, where, out);
  check_vocabularies(out, where);
  place_side_by_side(out.program);
  out.digest = digest_of(program, index);
  measure(out);
  return out;
}

std::shared_ptr<const CapturedModel> captured_at(const fs::path& folder) {
  for (const char* name : {kCapturedProgram, kCapturedIndex}) {
    std::error_code none;
    if (fs::exists(folder / name, none)) continue;
    throw Error(ErrorCode::kInput, folder,
                fmt::format("it has no {}, so it is no captured module", name),
                "tracestep.capture(module, inputs, folder=…) in Python writes such a folder");
  }
  const std::string program =
      read_text_file(folder / kCapturedProgram, "program"_field, kMaxProgramBytes);
  const std::string index =
      read_text_file(folder / kCapturedIndex, "program"_field, kMaxIndexBytes);
  // Models that were read: a command asks for one folder again and again (grids, keys of rows).
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
