// Damages texts for a parser, from a seed: the parser must read them, or refuse them with an Error, and nothing else.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "gradwire/error.hpp"

namespace gradwire::test {

/// Returns `text` with a few edits: inserted pieces, removed or changed bytes, inserted parts of other texts.
inline std::string mutated(std::string text, const std::vector<std::string>& texts,
                           const std::vector<std::string>& pieces, std::mt19937& random) {
  for (std::size_t edits = 1 + random() % 4; edits > 0; --edits) {
    const std::size_t at = text.empty() ? 0 : random() % text.size();
    switch (random() % 5) {
      case 0: text.insert(at, pieces[random() % pieces.size()]); break;
      case 1: text.erase(at, 1 + random() % 8); break;
      case 2: text.resize(at); break;
      case 3:
        if (!text.empty()) {
          text[at] = static_cast<char>(random());
        }
        break;
      default: {
        const std::string& other = texts[random() % texts.size()];
        text.insert(at, other.substr(other.empty() ? 0 : random() % other.size(), random() % 60));
      }
    }
  }
  return text;
}

/// Returns pieces that are hard on a reader of JSON, and `more`.
inline std::vector<std::string> json_pieces(const std::vector<std::string>& more) {
  std::vector<std::string> pieces{"{",
                                  "}",
                                  "[",
                                  "]",
                                  "null",
                                  "-1",
                                  "1e999",
                                  "18446744073709551616",
                                  "\"",
                                  ",",
                                  "[[[[[[[[",
                                  "\xff",
                                  std::string(1, '\0')};
  pieces.insert(pieces.end(), more.begin(), more.end());
  return pieces;
}

/// Passes `texts`, which must be read, and then damaged ones to `parse`.
inline void parse_mutations(const std::vector<std::string>& texts, const std::vector<std::string>& pieces,
                            unsigned seed, int rounds, const std::function<void(const std::string&)>& parse) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (const std::string& text : texts) {
    EXPECT_NO_THROW(parse(text)) << text;
  }
  std::mt19937 random(seed);
  for (int round = 0; round < rounds; ++round) {
    const std::string text = mutated(texts[random() % texts.size()], texts, pieces, random);
    try {
      parse(text);
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): a refusal
    } catch (const std::exception& error) {
      ADD_FAILURE() << "round " << round << " threw " << error.what() << " for:\n" << text;
    }
  }
}

}  // namespace gradwire::test
