/* SPDX-License-Identifier: MIT */
#include "spoa/ctl/head_lines.h"

#include "spoa/base/os/file.h"

enum { FILE_MOST = 64 * 1024 };

static bool add(struct head_lines *head, struct slice text, struct fail *why)
{
    if (head->count == HEAD_LINES)
        return fail(why, "there are more than %d headers", HEAD_LINES);
    return header_line_parse(text, &head->line[head->count++]) ||
           fail(why, "header %zu is not 'NAME: VALUE'", head->count);
}

static bool read_file(struct head_lines *head, const char *path, struct slice *text, struct fail *why)
{
    if (head->files == HEAD_FILES)
        return fail(why, "there are more than %d files", HEAD_FILES);
    if (!file_read_stream(strcmp(path, "-") == 0 ? "/dev/stdin" : path, FILE_MOST, text, why))
        return false;
    head->file[head->files++] = *text;
    return true;
}

/* Takes the next line, without its LF or CRLF. Returns false at the end and at an empty line. */
static bool next_line(struct slice *rest, struct slice *line)
{
    if (!slice_split(rest, '\n', line))
        return false;
    if (line->len && line->at[line->len - 1] == '\r')
        line->len--;
    return line->len > 0;
}

static bool add_all(struct head_lines *head, struct slice rest, struct fail *why)
{
    struct slice line;
    while (next_line(&rest, &line))
        if (!add(head, line, why))
            return false;
    return true;
}

bool head_lines_add(struct head_lines *head, const char *text, struct fail *why)
{
    struct slice lines;
    if (text[0] != '@')
        return add(head, slice_text(text), why);
    return read_file(head, text + 1, &lines, why) && add_all(head, lines, why);
}

bool head_lines_request(struct head_lines *head, const char *text, struct fail *why)
{
    struct slice lines;
    if (slice_present(head->request))
        return fail(why, "there are two requests");
    head->request = slice_text(text);
    if (text[0] != '@')
        return true;
    return read_file(head, text + 1, &lines, why) &&
           (next_line(&lines, &head->request) || fail(why, "%s: there is no request", text + 1)) &&
           add_all(head, lines, why);
}

void head_lines_free(struct head_lines *head)
{
    for (size_t i = 0; i < head->files; i++)
        file_free(head->file[i]);
}
