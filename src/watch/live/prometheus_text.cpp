#include "watch/live/prometheus_text.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

#include "base/text.hpp"
#include "gradwire/error.hpp"

namespace gradwire::watch::live {
namespace {

// A mistake in a line, to which the caller adds the line's number.
struct Mistake {
  std::string text;
};

bool begins_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ':'; }
bool is_in_name(char c) { return begins_name(c) || (c >= '0' && c <= '9'); }

class SampleLine {
 public:
  explicit SampleLine(std::string_view line) : rest_(line) {}

  TextSample parse() {
    TextSample sample;
    sample.name = name("a metric's name");
    if (take('{')) {
      while (!take('}')) {
        if (!sample.labels.empty() && !take(',')) {
          throw Mistake{"\",\" or \"}\" must follow a label"};
        }
        std::string label = name("a label's name");
        if (!take('=') || !take('"')) {
          throw Mistake{"=\"...\" must follow the label " + label};
        }
        std::string value = quoted(label);
        sample.labels.emplace_back(std::move(label), std::move(value));
      }
    }
    if (!take(' ')) {
      throw Mistake{"a blank and a number must follow " + sample.name};
    }
    sample.value = number();
    return sample;
  }

 private:
  bool take(char wanted) {
    if (rest_.empty() || rest_.front() != wanted) {
      return false;
    }
    rest_.remove_prefix(1);
    return true;
  }

  std::string name(const char* what) {
    const auto* const end = std::find_if_not(rest_.begin(), rest_.end(), is_in_name);
    const auto length = static_cast<std::size_t>(end - rest_.begin());
    if (length == 0 || !begins_name(rest_.front())) {
      throw Mistake{text::quote(rest_.substr(0, 20)) + " is not " + what};
    }
    std::string result(rest_.substr(0, length));
    rest_.remove_prefix(length);
    return result;
  }

  std::string quoted(const std::string& label) {
    std::string value;
    while (!take('"')) {
      if (rest_.empty() || rest_ == "\\") {
        throw Mistake{"the value of the label " + label + " does not end"};
      }
      char c = rest_.front();
      rest_.remove_prefix(1);
      if (c == '\\') {
        c = rest_.front();
        rest_.remove_prefix(1);
        if (c != 'n' && c != '\\' && c != '"') {
          throw Mistake{"an escape of the label " + label + " is none of \\\\, \\\" and \\n"};
        }
        c = c == 'n' ? '\n' : c;
      }
      value += c;
    }
    return value;
  }

  [[nodiscard]] double number() const {
    if (rest_ == "NaN") {
      return std::numeric_limits<double>::quiet_NaN();
    }
    if (rest_ == "+Inf" || rest_ == "-Inf") {
      return rest_.front() == '+' ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
    }
    double value = 0;
    const auto [end, problem] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (problem != std::errc() || end != rest_.data() + rest_.size()) {
      throw Mistake{text::quote(rest_.substr(0, 40)) + " is no number"};
    }
    return value;
  }

  std::string_view rest_;
};

}  // namespace

std::string_view TextSample::label(std::string_view wanted) const {
  const auto found =
      std::find_if(labels.begin(), labels.end(), [&](const auto& label) { return label.first == wanted; });
  return found == labels.end() ? std::string_view() : std::string_view(found->second);
}

std::vector<TextSample> parse_metrics(std::string_view text) {
  std::vector<TextSample> samples;
  std::size_t number = 0;
  bool ended = false;
  while (!text.empty()) {
    const std::size_t length = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, length);
    text.remove_prefix(std::min(length + 1, text.size()));
    ++number;
    try {
      if (ended) {
        throw Mistake{"nothing may follow # EOF"};
      }
      ended = line == "# EOF";
      if (!line.empty() && line.front() != '#') {
        samples.push_back(SampleLine(line).parse());
      }
    } catch (const Mistake& mistake) {
      throw Error(ErrorCode::invalid_argument, "line " + std::to_string(number) + ": " + mistake.text);
    }
  }
  if (!ended) {
    throw Error(
        ErrorCode::invalid_argument,
        "line " + std::to_string(number) + ": the text ends without # EOF, so it is not a whole file of gradwire");
  }
  return samples;
}

}  // namespace gradwire::watch::live
