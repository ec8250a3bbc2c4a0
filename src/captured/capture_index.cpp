#include "captured/capture_index.h"

#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"

namespace tracestep {
namespace {

constexpr std::int64_t kFormat = 1;
constexpr std::size_t kMaxNameBytes = 200;
constexpr std::int64_t kMaxHigh = std::int64_t{1} << 31;
constexpr double kMostBeta = 0.9999999;  // as train has it (train/train_fields.cpp)

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
    if (const Json* all = given(index, "optimizer_groups")) groups(*all);
    if (const Json* kind = given(index, "optimizer")) out_.optimizer = name_of(*kind, "optimizer");
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    fail_input(where_, "{}", fmt::format(format, std::forward<Args>(args)...));
  }

  // Returns the member `key`; nullptr if it is missing or null.
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
    } else if (role == "batch") {
      out.role = InputRole::kBatch;
      if (value.type != Type{DType::kI64, {1}}) {
        fail("{} is {}; the number of a batch is i64[1]", out.name, value.type.str());
      }
    } else if (role != "given") {
      fail("input {} has the role \"{}\"; there are tokens, targets, batch and given", out.name,
           role);
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
      if (other.empty() || other.size() > kMaxNameBytes)
        fail("\"tied\" has a name of {} bytes", other.size());
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

  // Returns the member `key`, a finite number of at least 0; throws if it is not.
  double real(const Json& object, std::string_view key) const {
    const Json& value = member(object, key);
    const double out = value.is_number() ? value.as_double() : -1.0;
    if (!(out >= 0.0) || !std::isfinite(out)) fail("\"{}\" is no number of at least 0", key);
    return out;
  }

  void groups(const Json& all) {
    if (!all.is_array() || all.items().empty()) fail("\"optimizer_groups\" is no list of some");
    std::set<std::string> seen;
    for (const Json& one : all.items()) {
      if (!one.is_object()) fail("a group of the optimizer is no object");
      OptimizerGroup out{
          .parameters = {}, .lr = real(one, "lr"), .weight_decay = real(one, "weight_decay")};
      const auto adamws = [&](std::string_view key, double most) -> std::optional<double> {
        if (given(one, key) == nullptr) return std::nullopt;
        const double value = real(one, key);
        if (value > most) fail("\"{}\" is {:g}; {:g} is the most", key, value, most);
        return value;
      };
      out.beta1 = adamws("beta1", kMostBeta);
      out.beta2 = adamws("beta2", kMostBeta);
      out.eps = adamws("eps", 1.0);
      const Json& parameters = member(one, "parameters");
      if (!parameters.is_array()) fail("\"parameters\" is no list");
      for (const Json& parameter : parameters.items()) {
        const std::string name = name_of(parameter, "parameters");
        if (out_.program.value(leaf(name, "parameters")).leaf == LeafKind::kInput) {
          fail("{} is in a group of the optimizer and an input", name);
        }
        if (!seen.insert(name).second) fail("{} is in two groups of the optimizer", name);
        out.parameters.insert(name);
      }
      out_.groups.push_back(std::move(out));
    }
  }

  void check(const Json& found) {
    if (!found.is_object()) fail("\"check\" is no object");
    CaptureCheck out{real(found, "loss"), real(found, "gradients"), {}};
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

}  // namespace

void read_capture_index(const std::string& text, const std::string& where, CapturedModel& model) {
  IndexReader(model, where).read(Json::parse(text, where));
}

}  // namespace tracestep
