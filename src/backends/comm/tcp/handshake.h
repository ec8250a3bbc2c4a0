// Messages that two processes exchange before all others, as bytes: each proves that it knows the
// secret of the run. Sockets and time limits are left to meeting.cpp.
//
//   process 0 to another   Greeting: a nonce
//   another to process 0   Hello: who it is, a nonce of its own, its proof
//   process 0 to another   Proof: its own
//
// A proof is HMAC-SHA256 with the secret as its key, over who makes it, the rank and number of
// processes in the Hello, and both nonces: so it is worth nothing on another connection, in the
// other direction or for another rank. What is not protected stands in docs/parallel.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "backends/comm/tcp/secret.h"

namespace tracestep {

using Nonce = Secret;  // Random bytes that are used only once.
using Proof = std::array<unsigned char, 32>;
using Magic = std::array<char, 16>;
inline constexpr Magic kMagic{"tracestep ranks"};

struct Greeting {
  Magic magic = kMagic;
  Nonce nonce{};
};
struct Hello {
  Magic magic = kMagic;
  std::uint32_t rank = 0, count = 0;
  Nonce nonce{};
  Proof proof{};
};
static_assert(sizeof(Greeting) == 48 && sizeof(Hello) == 88, "no padding is sent");

// Returns the answer of another process to the greeting of process 0, with a `nonce` that it has
// drawn; nullopt if the greeting does not come from this program.
std::optional<Hello> answer_to(const Greeting& greeting, const Secret& secret, int rank, int count,
                               const Nonce& nonce);

// Process 0 fills this from the bytes of a Hello that have arrived: the rank of a process of this
// run, or why the sender is no such process; if neither is set, more bytes are needed.
struct Heard {
  std::optional<int> rank = {};
  std::string problem = {};
};
Heard hear(std::span<const std::byte> so_far, const Greeting& greeting, const Secret& secret,
           int count);

// Returns the answer of process 0 to a Hello: its own proof that it knows the secret.
Proof proof_of_first(const Greeting& greeting, const Hello& hello, const Secret& secret);
// True if two proofs are equal; takes a time that does not depend on where they differ.
bool is_same(const Proof& a, const Proof& b);

}  // namespace tracestep
