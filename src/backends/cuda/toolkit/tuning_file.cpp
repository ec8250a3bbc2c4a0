#include "backends/cuda/toolkit/tuning_file.h"

#include <filesystem>

#include <fmt/format.h>

#include "base/error.h"
#include "base/input_file.h"
#include "base/json.h"
#include "base/output_file.h"

namespace tracestep::cuda {
namespace {

constexpr std::string_view kSchema = "tracestep.gemm-tuning.v1";

std::string to_hex(const AlgorithmBits& bits) {
  std::string out;
  for (std::uint64_t word : bits) out += fmt::format("{:016x}", word);
  return out;
}

AlgorithmBits from_hex(const std::string& text, const std::string& path) {
  AlgorithmBits out{};
  const bool digits = text.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (text.size() != 16 * out.size() || !digits) {
    fail_input(path, "'{}' is no algorithm: 128 hexadecimal digits", text);
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = std::stoull(text.substr(16 * i, 16), nullptr, 16);
  }
  return out;
}

}  // namespace

TuningFile::TuningFile(std::string path, const std::string& device, const std::string& library)
    : path_(std::move(path)), owner_(device + "; " + library) {
  if (!path_.empty() && std::filesystem::exists(path_)) read();
}

std::optional<AlgorithmBits> TuningFile::find(const std::string& problem) const {
  const auto found = choices_.find({owner_, problem});
  if (found == choices_.end()) return std::nullopt;
  return found->second.algorithm;
}

void TuningFile::add(const std::string& problem, const AlgorithmBits& algorithm,
                     double microseconds) {
  choices_[{owner_, problem}] = {algorithm, microseconds};
  if (!path_.empty()) write();
}

void TuningFile::read() {
  constexpr std::uint64_t kMostBytes = std::uint64_t{16} << 20;
  const Json json = Json::parse(read_text_file(path_, path_, kMostBytes), path_);
  if (json.at("schema").as_string() != kSchema) {
    fail_input(path_, "is no tuning file: schema '{}', not '{}'", json.at("schema").as_string(),
               kSchema);
  }
  for (const Json& row : json.at("choices").items()) {
    choices_[{row.at("device").as_string(), row.at("problem").as_string()}] = {
        from_hex(row.at("algorithm").as_string(), path_), row.at("microseconds").as_double()};
  }
}

void TuningFile::write() const {
  Json json = Json::object();
  json["schema"] = kSchema;
  Json rows = Json::array();
  for (const auto& [key, choice] : choices_) {
    Json row = Json::object();
    row["device"] = key.first;
    row["problem"] = key.second;
    row["algorithm"] = to_hex(choice.algorithm);
    row["microseconds"] = choice.microseconds;
    rows.push_back(std::move(row));
  }
  json["choices"] = std::move(rows);
  OutputFile file(path_);  // of every rank: they tune together
  file.write(json.dump(1) + "\n");
  file.commit();
}

}  // namespace tracestep::cuda
