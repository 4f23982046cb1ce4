#include "watch/page/page.hpp"

#include <array>
#include <ctime>

#include "base/durable_file.hpp"
#include "base/own_files.hpp"
#include "base/regular_file.hpp"
#include "base/text.hpp"
#include "gradwire/error.hpp"
#include "watch/page/charts.hpp"
#include "watch/page/sections.hpp"

namespace gradwire::watch::page {
namespace {

std::string date_of(double seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm parts{};
  std::array<char, 64> text{};
  return ::gmtime_r(&time, &parts) != nullptr &&
                 std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &parts) > 0
             ? text.data()
             : "";
}

std::string command_of(const Json& job) {
  std::string text;
  for (const Json& argument : job.at("command")) {
    text += (text.empty() ? "" : " ") + argument.get<std::string>();
  }
  return text;
}

std::string fact(std::string_view name, const std::string& html) {
  return "<div><dt>" + std::string(name) + "</dt><dd>" + html + "</dd></div>";
}

std::string hosts_of(const Json& hosts) {
  constexpr std::size_t kMost = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(hosts.size(), kMost); ++i) {
    text += (i == 0 ? "" : ", ") + hosts.at(i).get<std::string>();
  }
  return text + (hosts.size() > kMost ? " and " + std::to_string(hosts.size() - kMost) + " more" : "");
}

std::string part_text(const std::string& part) {
  return part == "library" ? "a session of the library" : "an unchanged job under the drop-in (" + part + ")";
}

std::string heading(const Numbers& numbers) {
  const Json& job = numbers.root().at("job");
  const auto text = [&](const char* key) { return escaped(job.at(key).get<std::string>()); };
  std::string html = "<header><h1>Report of a job of " + numbers.span("/job/world", Unit::count) +
                     (job.at("world") == 1 ? " rank" : " ranks") +
                     (job.at("emulated_link").is_null() ? "" : " over an emulated link") + "</h1><code class=command>" +
                     escaped(command_of(job)) + "</code><dl class=facts>";
  if (!job.at("name").get<std::string>().empty()) {
    html += fact("job", text("name"));
  }
  html += fact("started", date_of(job.at("started"))) + fact("ran for", numbers.span("/job/seconds", Unit::seconds)) +
          (job.at("has_steps").get<bool>() ? fact("steps", numbers.span("/totals/steps", Unit::count)) : "") +
          fact(job.at("hosts").size() == 1 ? "host" : "hosts", escaped(hosts_of(job.at("hosts"))));
  if (!job.at("transport").get<std::string>().empty()) {
    html += fact("over", text("transport"));
  }
  return html + fact("as", escaped(part_text(job.at("part").get<std::string>()))) + fact("gradwire", text("gradwire")) +
         "</dl>\n" + cards(numbers);
}

std::string advice_html(const Numbers& numbers) {
  const Json& sentences = numbers.root().at("advice");
  std::string html = "<h2 id=advice>What to look at</h2>";
  if (sentences.empty()) {
    return html + "<p>The numbers show nothing that is out of order.</p>";
  }
  html += "<ul class=advice>";
  for (const Json& sentence : sentences) {
    const std::string text = sentence.get<std::string>();
    const bool bad = text.starts_with("Rank") || text.find("NaN") != std::string::npos;
    html += std::string(bad ? "<li class=bad>" : "<li>") + escaped(text) + "</li>";
  }
  return html + "</ul>\n";
}

Section about_section(const Numbers& numbers) {
  const Json& root = numbers.root();
  const Json& job = root.at("job");
  std::string html = missing_list(job.at("notes").get<std::vector<std::string>>(), "h3");
  std::string rows;
  for (const auto& [name, value] : job.at("environment").items()) {
    rows += "<tr><th scope=row><code>" + escaped(name) + "</code></th><td class=text><code>" +
            escaped(value.get<std::string>()) + "</code></td></tr>";
  }
  if (!rows.empty()) {
    html += table("gradwire's variables, as rank 0 had them", {"variable", "value"}, rows);
  }
  if (numbers.value("/totals/pulls") + numbers.value("/totals/pushes") > 0) {
    html += "<p>Embedding tables: " + numbers.bold("/totals/pulls", Unit::count) + " pulls in " +
            numbers.bold("/totals/pull_seconds", Unit::seconds) + " and " +
            numbers.bold("/totals/pushes", Unit::count) + " pushes in " +
            numbers.bold("/totals/push_seconds", Unit::seconds) + ", of all ranks.</p>";
  }
  html += "<p class=soft>Ranks kept at most 512 samples each, " + numbers.span("/job/ranks_seen", Unit::count) +
          " of " + numbers.span("/job/world", Unit::count) + " ranks left a history. Writing them took up to " +
          numbers.span("/totals/observer_share", Unit::share) +
          " of a core. Bands over ranks leave out the outer tenths. Steps count from the end of one to the end of the "
          "next, so the first is not among the step times. Every number here stands in the JSON beside this page.</p>";
  return {"about", "About these numbers", html};
}

constexpr std::string_view kTitleEnd = " - gradwire report</title>";  // identifies a page of ours

void refuse_without(std::string_view mark, const std::filesystem::path& file, const std::string& what) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) {
    return;
  }
  constexpr std::size_t kHead = 2048;
  RegularFile stream(file, what);
  std::string head(kHead, '\0');
  head.resize(stream.read(head.data(), head.size()));
  if (!head.empty() && head.find(mark) == std::string::npos) {
    throw Error(ErrorCode::invalid_argument,
                file.string() + " was not made by gradwire report, and would be lost; move it away, or name another " +
                    "file or directory");
  }
}

}  // namespace

void refuse_foreign(const PageFiles& files) {
  refuse_without(kTitleEnd, files.html, "page");
  refuse_without("\"format\": \"gradwire report\"", files.json, "numbers");
}

std::string to_html(const Json& report) {
  const Numbers numbers(report);
  Charts charts(
      {.times = values_of(report.at("curves").at("times")), .steps = values_of(report.at("curves").at("steps"))});
  std::vector<Section> sections;
  sections.push_back(step_section(numbers, charts));
  sections.push_back(rank_section(numbers, charts));
  sections.push_back(bytes_section(numbers, charts));
  sections.push_back(codec_section(numbers, charts));
  sections.push_back(link_section(numbers, charts));
  sections.push_back(notes_section(numbers, charts));
  sections.push_back(health_section(numbers, charts));
  sections.push_back(replaced_section(numbers, charts));
  sections.push_back(about_section(numbers));
  std::erase_if(sections, [](const Section& section) { return section.html.empty(); });
  std::string html = heading(numbers) + "<nav aria-label=\"on this page\"><a href=\"#advice\">What to look at</a>";
  for (const Section& section : sections) {
    html += "<a href=\"#" + section.id + "\">" + escaped(section.title) + "</a>";
  }
  html += "</nav></header>\n<main>" + advice_html(numbers);
  for (const Section& section : sections) {
    html += "<section aria-labelledby=" + section.id + "><h2 id=" + section.id + ">" + escaped(section.title) +
            "</h2>\n" + section.html + "</section>\n";
  }
  return page_frame(text::beginning(command_of(report.at("job")), 80), html + "</main>",
                    report.at("job").at("gradwire").get<std::string>());
}

std::string page_frame(const std::string& title, const std::string& body, const std::string& version) {
  std::string html =
      "<!DOCTYPE html>\n<html lang=en><head><meta charset=utf-8>"
      "<meta name=viewport content=\"width=device-width,initial-scale=1\">"
      "<meta name=color-scheme content=\"light dark\"><link rel=icon href=\"data:,\"><title>" +
      escaped(title) + std::string(kTitleEnd) + "<style>";
  html += style_sheet();
  return html + "</style></head><body>\n" + body + "<footer>Made by <code>gradwire report</code>, gradwire " +
         escaped(version) + ".</footer></body></html>\n";
}

void write_files(const PageFiles& files, const Json& numbers, const std::string& html) {
  const auto write = [](const std::filesystem::path& file, const std::string& text, Readers readers) {
    std::error_code ignored;  // writing reports the error
    make_own_folders(std::filesystem::absolute(file).parent_path(), ignored);
    write_report_file(
        file, [&](std::ostream& out) { out << text; }, readers);
  };
  write(files.json, numbers.dump(1, ' ', false, Json::error_handler_t::replace) + "\n", Readers::owner);
  write(files.html, html, Readers::everybody);
}

Summary write_page(const std::filesystem::path& folder, const PageFiles& files, const std::optional<std::string>& job) {
  refuse_foreign(files);
  Summary summary = summarize(read_job(folder, job));
  summary.advice = advice(summary);
  const Json report = to_json(summary);
  write_files(files, report, to_html(report));
  return summary;
}

}  // namespace gradwire::watch::page
