#include "backends/comm/tcp/handshake.h"

#include <sodium.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace tracestep {
namespace {

static_assert(sizeof(Secret) == crypto_auth_hmacsha256_KEYBYTES);
static_assert(sizeof(Proof) == crypto_auth_hmacsha256_BYTES);

enum class Role : std::uint32_t { kFirst = 1, kOther = 2 };

Proof proof_of(Role role, const Greeting& greeting, const Hello& hello, const Secret& secret) {
  struct {
    Magic magic = kMagic;
    Role role;
    std::uint32_t rank, count;
    Nonce first, other;
  } const text{.role = role,
               .rank = hello.rank,
               .count = hello.count,
               .first = greeting.nonce,
               .other = hello.nonce};
  static_assert(sizeof text == 92, "padding would have any value");
  Proof out{};
  crypto_auth_hmacsha256(out.data(), reinterpret_cast<const unsigned char*>(&text), sizeof text,
                         secret.data());
  return out;
}

}  // namespace

std::optional<Hello> answer_to(const Greeting& greeting, const Secret& secret, int rank, int count,
                               const Nonce& nonce) {
  if (greeting.magic != kMagic) return std::nullopt;
  Hello out{.rank = static_cast<std::uint32_t>(rank),
            .count = static_cast<std::uint32_t>(count),
            .nonce = nonce};
  out.proof = proof_of(Role::kOther, greeting, out, secret);
  return out;
}

Heard hear(std::span<const std::byte> so_far, const Greeting& greeting, const Secret& secret,
           int count) {
  if (std::memcmp(so_far.data(), kMagic.data(), std::min(so_far.size(), kMagic.size())) != 0) {
    return {.problem = "it is another program or version"};
  }
  Hello hello;
  if (so_far.size() < sizeof hello) return {};
  std::memcpy(&hello, so_far.data(), sizeof hello);
  if (!is_same(hello.proof, proof_of(Role::kOther, greeting, hello, secret))) {
    return {.problem = "it does not know the secret of this run"};
  }
  if (hello.count != static_cast<std::uint32_t>(count)) {
    return {.problem =
                fmt::format("it belongs to a run of {} processes, not of {}", hello.count, count)};
  }
  if (hello.rank == 0 || hello.rank >= hello.count) {
    return {.problem = fmt::format("it is rank {} of {}", hello.rank, count)};
  }
  return {.rank = static_cast<int>(hello.rank)};
}

Proof proof_of_first(const Greeting& greeting, const Hello& hello, const Secret& secret) {
  return proof_of(Role::kFirst, greeting, hello, secret);
}

bool is_same(const Proof& a, const Proof& b) {
  return sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace tracestep
