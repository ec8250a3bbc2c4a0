#include "backends/comm/tcp/secret.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/comm/launch/launched.h"
#include "base/error.h"
#include "base/input_file.h"

namespace tracestep {
namespace {

constexpr std::uint64_t kMostFileBytes = 4096;

// Reads 64 hexadecimal digits, which may have white space as `od` prints it; nullopt for others.
std::optional<Secret> secret_of(const std::string& text) {
  Secret out{};
  std::size_t bytes = 0;
  const int status =
      sodium_hex2bin(out.data(), out.size(), text.data(), text.size(), " \t\r\n", &bytes, nullptr);
  return status == 0 && bytes == out.size() ? std::optional(out) : std::nullopt;
}

Secret secret_of_file(const std::string& path) {
  const std::string where(env::kCommSecretFile.name);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  const InputFile file(fd, path, where);
  struct stat info {};
  ::fstat(fd, &info);
  if (info.st_uid != ::geteuid()) {
    throw Error(
        ErrorCode::kInput, where,
        fmt::format("{} belongs to user {}, and user {} runs this", path, info.st_uid, ::geteuid()),
        "name a file of your own");
  }
  if ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    throw Error(ErrorCode::kInput, where,
                fmt::format("{} has mode {:o}: others may use it", path, info.st_mode & 07777u),
                "make a new one of mode 600");
  }
  if (const auto secret = secret_of(file.text(kMostFileBytes))) return *secret;
  fail_input(where, "{} does not hold 64 hexadecimal digits", path);
}

}  // namespace

Secret random_bytes() {
  Secret out{};
  TRACESTEP_CHECK(::getrandom(out.data(), out.size(), 0) == std::ssize(out));
  return out;
}

std::string hex_of(const Secret& secret) {
  std::string out(2 * secret.size() + 1, '\0');
  sodium_bin2hex(out.data(), out.size(), secret.data(), secret.size());
  out.pop_back();  // the terminating zero
  return out;
}

std::string line_that_makes_secret(std::string_view file) {
  return fmt::format("(umask 077; head -c 32 /dev/urandom | od -An -tx1 > {})", file);
}

std::optional<Secret> secret_of_run() {
  if (const auto text = env::value_of(env::kCommSecret)) {
    if (const auto secret = secret_of(*text)) return secret;
    fail_usage(std::string(env::kCommSecret.name), "it does not hold 64 hexadecimal digits");
  }
  const auto path = env::value_of(env::kCommSecretFile);
  return path ? std::optional(secret_of_file(*path)) : std::nullopt;
}

}  // namespace tracestep
