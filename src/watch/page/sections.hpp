// The sections of a page, each made from the JSON of its numbers.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "watch/page/charts.hpp"
#include "watch/page/units.hpp"

namespace gradwire::watch::page {

/// Numbers of the JSON, as texts that say where they come from.
class Numbers {
 public:
  explicit Numbers(const Json& root) : root_(root) {}
  /// `<b data-n="/totals/steps" data-u="n">12,345</b>`; `tag` may have a class: "td class=n".
  [[nodiscard]] std::string tagged(std::string_view tag, const std::string& place, Unit unit) const;
  [[nodiscard]] std::string bold(const std::string& place, Unit unit) const { return tagged("b", place, unit); }
  [[nodiscard]] std::string span(const std::string& place, Unit unit) const { return tagged("span", place, unit); }
  [[nodiscard]] std::string plain(const std::string& place, Unit unit) const {
    return tagged("i class=v", place, unit);
  }
  [[nodiscard]] std::string cell(const std::string& place, Unit unit) const {
    return tagged("td class=n", place, unit);
  }
  /// The number; NaN where it is null.
  [[nodiscard]] double value(const std::string& place) const;
  [[nodiscard]] const Json& root() const noexcept { return root_; }

 private:
  const Json& root_;
};

struct Section {
  std::string id;
  std::string title;
  std::string html;  // empty: nothing to show
};

[[nodiscard]] std::string cards(const Numbers& numbers);
[[nodiscard]] Section step_section(const Numbers& numbers, Charts& charts);
[[nodiscard]] Section bytes_section(const Numbers& numbers, Charts& charts);
[[nodiscard]] Section codec_section(const Numbers& numbers, Charts& charts);
[[nodiscard]] Section link_section(const Numbers& numbers, Charts& charts);
[[nodiscard]] Section rank_section(const Numbers& numbers, Charts& charts);
[[nodiscard]] Section health_section(const Numbers& numbers, Charts& charts);
[[nodiscard]] Section notes_section(const Numbers& numbers, Charts& charts);
[[nodiscard]] Section replaced_section(const Numbers& numbers, Charts& charts);

/// A table in a box of its own that scrolls sideways; `head` has the name of each column, with "#" before it for
/// numbers.
[[nodiscard]] std::string table(std::string_view caption, const std::vector<std::string>& head,
                                const std::string& rows);
/// Returns a section that lists what the page lacks, such as the histories of some ranks. `heading` is the tag of its
/// heading. Empty if there are no notes.
[[nodiscard]] std::string missing_list(const std::vector<std::string>& notes, const std::string& heading);
/// The word, escaped, with its meaning as a tooltip if the page has one.
[[nodiscard]] std::string with_tooltip(std::string_view term);
/// "late compute", with an explanation for people.
[[nodiscard]] std::string cause_text(const std::string& cause);

}  // namespace gradwire::watch::page
