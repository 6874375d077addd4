%code top {
/* The grammar of docs/language.md. Actions only call the builders of ast.c. Ends of statements
 * (newlines and `;`) arrive as one token, also before every `}`; see lexer_next in parse.c.
 *
 * Words of the kinds "reserved" stand for themselves everywhere; all other words are also names,
 * through the rule `name`. */
}
%require "3.8"
%define api.pure full
%define api.push-pull push
%define api.prefix {dsl_}
%define api.token.prefix {TOK_}
%define api.location.type {Span}
%define api.value.type union
%define parse.error custom
%define parse.lac full
%locations
%expect 0
%parse-param {Parse *p}

%code requires {
#include "frontend/ast.h"
#include <string.h>
typedef struct GridToken {
    int64_t rows, cols;
} GridToken;
}
%code provides {
#define YYSTYPE DSL_STYPE
#define YYLTYPE DSL_LTYPE
}
%code {
#define YYLLOC_DEFAULT(at, rhs, num)                                                               \
    ((at) = (num) ? span_join(YYRHSLOC(rhs, 1), YYRHSLOC(rhs, num))                                \
                  : (Span){YYRHSLOC(rhs, 0).file, YYRHSLOC(rhs, 0).end, YYRHSLOC(rhs, 0).end})
static void dsl_error(const Span *at, Parse *p, const char *message);
static Word word(const char *text, Span span)
{
    return (Word){text, span};
}
#define NO_WORD ((Word){0})
}

%token <const char *> NAME "a name"
%token <int64_t> INT "an integer"
%token <double> REAL "a number"
%token <double> TIME "a time such as 250us"
%token <GridToken> GRID "a block size such as 128x128"
%token <const char *> STRING "a string"
%token EOS "the end of the line"
%token NEWLINE "a newline" COMMENT "a comment" /* never reach the parser */
%token ARROW "->" DOTS ".." LE "<=" GE ">="
/* reserved */
%token VERSION "version" WEIGHTS "weights" CONST "const" DIM "dim" CALIBRATE "calibrate"
%token SCHEME "scheme" BLOCK "block" MODEL "model" EXPECT "expect" QUANT "quant" AUTO "auto"
%token SHARD "shard" PARAM "param" FROM "from" FOR "for" IN "in" RETURN "return"
%token DEFAULT "default"
/* contextual */
%token WEIGHT "weight" ACT "act" SYM "sym" ASYM "asym" CODEBOOK "codebook" PER "per" TENSOR "tensor"
%token CHANNEL "channel" TOKEN "token" GROUP "group" SCALE "scale" STATIC "static"
%token DYNAMIC "dynamic" BY "by" FAST "fast" KEEP "keep" SMOOTH "smooth" FUSED "fused"
%token INVARIANT "invariant"
%token ROTATE "rotate"
%token ATOL "atol" RTOL "rtol" COSINE "cosine" SQNR "sqnr" CANDIDATES "candidates" ON "on"
%token SAMPLES "samples" REQUIRE "require" BYTES "bytes" MINIMIZE "minimize"
%token LATENCY "latency" AT_WORD "at" COUPLE "couple" SIBLINGS "siblings" SLOWER "slower"
%token ERROR_WORD "error" OUT "out" REDUCE "reduce" SUM "sum" MODULE "module"

%type <Word> name string part_role index.opt
%type <From> tensor_from
%type <PartList> parts
%type <const char *> contextual
%type <Word> segment_name segment_alternative star
%type <WordList> strings targets segment_names segment_alternatives
%type <Item *> item
%type <Expr *> expr size
%type <ExprList> exprs exprs.opt
%type <Arg> arg
%type <ArgList> args args.opt by_args
%type <TypeExpr> type
%type <Decl> decl result
%type <DeclList> decls decls.opt results result_list
%type <Stmt *> stmt
%type <StmtList> body stmts
%type <SchemeLineList> scheme_lines
%type <SchemeLine> scheme_line
%type <SchemeWordList> scheme_words
%type <SchemeWord> scheme_word
%type <Rule> rule
%type <RuleList> rules
%type <SegmentList> path
%type <Segment> segment
%type <IndexRange> index_range
%type <IndexList> index_alternatives
%type <Action> action
%type <ActionList> actions
%type <BoundList> bounds
%type <BoundKind> bound_kind
%type <double> number quantity
%type <AutoLine> auto_line measure candidates weighted_size weighted_sizes
%type <AutoLineList> auto_lines
%type <Word> candidate
%type <bool> relation

%left '+' '-'
%left '*' '/'
%precedence NEG
%precedence '@'

%%

text: items;
items:
  %empty
| items item EOS { ast_add(p, $item); }
| items error EOS { ast_lost(p); yyerrok; }
| items "const" name error EOS {
    ast_add(p, ast_const(p, span_join(@2, @4), $name, ast_bad(p, @error)));
    yyerrok;
  }
| items "dim" name error EOS {
    ast_add(p, ast_dim(p, span_join(@2, @4), $name, (ExprList){0}));
    yyerrok;
  }
;

item:
  "version" INT { $$ = ast_version(p, @$, ast_int(p, @INT, $INT)); }
| "weights" strings { $$ = ast_files(p, ITEM_WEIGHTS, @$, $strings); }
| "calibrate" strings { $$ = ast_files(p, ITEM_CALIBRATE, @$, $strings); }
| "calibrate" "from" string {
    $$ = ast_files(p, ITEM_CALIBRATED, @$, ast_words_add(p, (WordList){0}, $string));
  }
| "const" name '=' expr { $$ = ast_const(p, @$, $name, $expr); }

| "dim" name "in" '[' exprs ']' { $$ = ast_dim(p, @$, $name, $exprs); }

| "scheme" NAME '{' scheme_lines '}' {
    $$ = ast_scheme(p, @$, word($NAME, @NAME), $scheme_lines);
  }
| "scheme" error '{' scheme_lines '}' { $$ = ast_item(p, ITEM_BAD, @$, NO_WORD); ast_lost(p); }
| "block" name index.opt '(' decls.opt ')' "->" results body {
    $$ = ast_body(p, ITEM_BLOCK, @$, span_join(@1, @results), $name, $[index.opt],
                  $[decls.opt], $results, $body);
  }
| "block" error body { $$ = ast_item(p, ITEM_BAD, @$, NO_WORD); ast_lost(p); }
| "model" name '(' decls.opt ')' "->" results body {
    $$ = ast_body(p, ITEM_MODEL, @$, span_join(@1, @results), $name, NO_WORD,
                  $[decls.opt], $results, $body);
  }
| "model" error body { $$ = ast_item(p, ITEM_BAD, @$, NO_WORD); ast_lost(p); }
| "expect" string[input] "->" string[output] bounds {
    $$ = ast_expect(p, @$, $input, $output, $bounds);
  }
| "quant" '{' rules '}' { $$ = ast_quant(p, @$, $rules); }
| "quant" error '{' rules '}' { $$ = ast_quant(p, @$, $rules); ast_lost(p); }
| "auto" '{' auto_lines '}' { $$ = ast_auto(p, @$, @1, $auto_lines); }
| "shard" name INT '{' shard_lines '}' { $$ = ast_item(p, ITEM_SHARD, @1, NO_WORD); }
| "shard" error '{' shard_lines '}' { $$ = ast_item(p, ITEM_SHARD, @1, NO_WORD); }
;

string: STRING { $$ = word($STRING, @$); };
strings:
  string { $$ = ast_words_add(p, (WordList){0}, $string); }
| strings string { $$ = ast_words_add(p, $1, $string); }
| strings ',' string { $$ = ast_words_add(p, $1, $string); }
;
number:
  INT { $$ = (double)$INT; }
| REAL
| '-' INT { $$ = -(double)$INT; }
| '-' REAL { $$ = -$REAL; }
;

bounds:
  %empty { $$ = (BoundList){0}; }
| bounds bound_kind number { $$ = ast_bounds_add(p, $1, $bound_kind, span_join(@2, @3), $number); }
;
bound_kind:
  "atol" { $$ = BOUND_ATOL; }
| "rtol" { $$ = BOUND_RTOL; }
| "cosine" { $$ = BOUND_COSINE; }
| "sqnr" { $$ = BOUND_SQNR; }
;

/* bodies */
index.opt:
  %empty { $$ = NO_WORD; }
| '[' name ']' { $$ = $name; }
;
decls.opt:
  %empty { $$ = (DeclList){0}; }
| decls
;
decls:
  decl { $$ = ast_decls_add(p, (DeclList){0}, $decl); }
| decls ',' decl { $$ = ast_decls_add(p, $1, $decl); }
;
decl: name ':' type { $$ = ast_decl(@$, $name, $type); };
results:
  type { $$ = ast_decls_add(p, (DeclList){0}, ast_decl(@$, NO_WORD, $type)); }
| '(' result_list ')' { $$ = $result_list; }
;
result_list:
  result { $$ = ast_decls_add(p, (DeclList){0}, $result); }
| result_list ',' result { $$ = ast_decls_add(p, $1, $result); }
;
result:
  decl
| type { $$ = ast_decl(@$, NO_WORD, $type); }
;
type: name '[' exprs.opt ']' { $$ = (TypeExpr){$name, $[exprs.opt], @$}; };

body: '{' stmts '}' { $$ = $stmts; };
stmts:
  %empty { $$ = (StmtList){0}; }
| stmts stmt EOS { $$ = ast_stmts_add(p, $1, $stmt); }
| stmts error EOS { $$ = ast_stmts_add(p, $1, ast_bad_stmt(p, @error)); yyerrok; }
| stmts "param" name error EOS {
    $$ = ast_stmts_add(p, $1, ast_bad_param(p, span_join(@2, @4), $name));
    yyerrok;
  }
| stmts targets '=' error EOS {
    $$ = ast_stmts_add(p, $1, ast_assign(p, span_join(@2, @4), $targets, ast_bad(p, @error)));
    yyerrok;
  }
;
stmt:
  "param" decl scheme_words tensor_from {
    $$ = ast_param(p, @$, $decl, $scheme_words, $tensor_from, NO_WORD);
  }
| "param" decl scheme_words "from" "module" string {
    $$ = ast_param(p, @$, $decl, $scheme_words, (From){0}, $string);
  }

| targets '=' expr { $$ = ast_assign(p, @$, $targets, $expr); }

| "return" exprs { $$ = ast_return(p, @$, $exprs); }
| "for" name "in" expr[first] ".." expr[end] body {
    $$ = ast_for(p, span_join(@1, @end), $name, $first, $end, $body);
  }
| "for" error body { $$ = ast_bad_for(p, @1, $body); }
;
tensor_from:
  %empty { $$ = (From){0}; }
| "from" string { $$ = (From){.tensor = $string}; }
| "from" parts { $$ = (From){.parts = $parts}; }
;
parts:
  part_role string { $$ = ast_parts_add(p, (PartList){0}, $part_role, $string); }
| parts part_role string { $$ = ast_parts_add(p, $1, $part_role, $string); }
;
part_role:
  NAME { $$ = word($NAME, @$); }
| "scale" { $$ = ast_word(p, "scale", @$); }
;
targets:
  name { $$ = ast_words_add(p, (WordList){0}, $name); }
| targets ',' name { $$ = ast_words_add(p, $1, $name); }
;

/* expressions */
exprs.opt:
  %empty { $$ = (ExprList){0}; }
| exprs
;
exprs:
  expr { $$ = ast_exprs_add(p, (ExprList){0}, $expr); }
| exprs ',' expr { $$ = ast_exprs_add(p, $1, $expr); }
;
expr:
  name { $$ = ast_name(p, $name); }
| INT { $$ = ast_int(p, @$, $INT); }
| REAL { $$ = ast_real(p, @$, $REAL); }
| '(' expr[inner] ')' { $$ = $inner; }
| '[' exprs.opt ']' { $$ = ast_list(p, @$, $[exprs.opt]); }
| expr[l] '+' expr[r] { $$ = ast_binary(p, @$, '+', $l, $r); }
| expr[l] '-' expr[r] { $$ = ast_binary(p, @$, '-', $l, $r); }
| expr[l] '*' expr[r] { $$ = ast_binary(p, @$, '*', $l, $r); }
| expr[l] '/' expr[r] { $$ = ast_binary(p, @$, '/', $l, $r); }
| '-' expr[e] %prec NEG { $$ = ast_neg(p, @$, $e); }
| expr[e] '@' NAME { $$ = ast_at(p, @$, $e, word($NAME, @NAME)); }
| name '(' args.opt ')' { $$ = ast_call(p, @$, $name, NULL, $[args.opt]); }
| name '[' expr[i] ']' '(' args.opt ')' { $$ = ast_call(p, @$, $name, $i, $[args.opt]); }
;
args.opt:
  %empty { $$ = (ArgList){0}; }
| args
;
args:
  arg { $$ = ast_args_add(p, (ArgList){0}, $arg); }
| args ',' arg { $$ = ast_args_add(p, $1, $arg); }
;
arg:
  expr { $$ = ast_arg(NO_WORD, $expr); }
| name '=' expr { $$ = ast_arg($name, $expr); }
| "weights" '=' expr { $$ = ast_arg(ast_word(p, "weights", @1), $expr); }
;

/* schemes */
scheme_lines:
  %empty { $$ = (SchemeLineList){0}; }
| scheme_lines scheme_line EOS { $$ = ast_scheme_lines_add(p, $1, $scheme_line); }
| scheme_lines error EOS { $$ = $1; yyerrok; }
;
scheme_line:
  "weight" NAME scheme_words { $$ = ast_scheme_line(@$, false, word($NAME, @NAME), $scheme_words); }
| "act" NAME scheme_words { $$ = ast_scheme_line(@$, true, word($NAME, @NAME), $scheme_words); }
;
scheme_words:
  %empty { $$ = (SchemeWordList){0}; }
| scheme_words scheme_word { $$ = ast_scheme_words_add(p, $1, $scheme_word); }
;
scheme_word:
  "sym" { $$ = ast_scheme_word(SW_SYM, @$); }
| "asym" { $$ = ast_scheme_word(SW_ASYM, @$); }
| "codebook" { $$ = ast_scheme_word(SW_CODEBOOK, @$); }
| "per" "tensor" { $$ = ast_scheme_word(SW_PER_TENSOR, @$); }
| "per" "channel" { $$ = ast_scheme_word(SW_PER_CHANNEL, @$); }
| "per" "token" { $$ = ast_scheme_word(SW_PER_TOKEN, @$); }
| "per" NAME { $$ = ast_scheme_per(p, @$, word($NAME, @NAME)); }
| "group" size { $$ = ast_scheme_value(SW_GROUP, @$, NO_WORD, $size); }
| "group" size NAME "channel" {
    $$ = ast_scheme_else(@$, $size, word($NAME, @NAME), SW_PER_CHANNEL);
  }
| "group" size NAME "token" {
    $$ = ast_scheme_else(@$, $size, word($NAME, @NAME), SW_PER_TOKEN);
  }
| "block" GRID { $$ = ast_scheme_block(@$, $GRID.rows, $GRID.cols); }
| "scale" NAME { $$ = ast_scheme_value(SW_SCALE, @$, word($NAME, @NAME), NULL); }
| "static" { $$ = ast_scheme_value(SW_STATIC, @$, NO_WORD, NULL); }
| "static" NAME { $$ = ast_scheme_value(SW_STATIC, @$, word($NAME, @NAME), NULL); }
| "static" NAME number {
    $$ = ast_scheme_value(SW_STATIC, @$, word($NAME, @NAME), ast_real(p, @number, $number));
  }
| "static" number {
    $$ = ast_scheme_value(SW_STATIC, @$, NO_WORD, ast_real(p, @number, $number));
  }
| "static" number NAME '-' INT {
    $$ = ast_scheme_zero(@$, word($NAME, @NAME), ast_real(p, @number, $number), -(int64_t)$INT);
  }
| "static" number NAME INT {
    $$ = ast_scheme_zero(@$, word($NAME, @NAME), ast_real(p, @number, $number), $INT);
  }
| "dynamic" { $$ = ast_scheme_word(SW_DYNAMIC, @$); }
| "by" NAME by_args { $$ = ast_scheme_by(@$, word($NAME, @NAME), $by_args); }
| "fast" { $$ = ast_scheme_word(SW_FAST, @$); }
;
by_args:
  %empty { $$ = (ArgList){0}; }
| '(' args.opt ')' { $$ = $[args.opt]; }
;
size:
  INT { $$ = ast_int(p, @$, $INT); }
| NAME { $$ = ast_name(p, word($NAME, @$)); }
| '(' expr ')' { $$ = $expr; }
;

/* rules */
rules:
  %empty { $$ = (RuleList){0}; }
| rules rule EOS { $$ = ast_rules_add(p, $1, $rule); }
| rules error EOS { $$ = $1; yyerrok; }
;
rule:
  "default" ':' actions { $$ = ast_rule(@$, @1, (SegmentList){0}, $actions); }
| path ':' actions { $$ = ast_rule(@$, @path, $path, $actions); }
| "slower" "error" { $$ = ast_slower(@$, word("error", @2)); }
| "slower" NAME { $$ = ast_slower(@$, word($NAME, @NAME)); }
;
path:
  segment { $$ = ast_path_add(p, (SegmentList){0}, $segment); }
| path '.' segment { $$ = ast_path_add(p, $1, $segment); }
;
segment:
  segment_names { $$ = ast_segment(@$, $1); }
| segment_names '[' '*' ']' {
    $$ = ast_segment_index(@$, ast_segment(@1, $1), INDEX_ANY, (IndexList){0});
  }
| segment_names '[' index_range ']' {
    $$ = ast_segment_index(@$, ast_segment(@1, $1), INDEX_LISTED,
                           ast_indices_add(p, (IndexList){0}, $index_range));
  }
| segment_names '[' '(' index_alternatives ')' ']' {
    $$ = ast_segment_index(@$, ast_segment(@1, $1), INDEX_LISTED, $index_alternatives);
  }
;
segment_names:
  '*' { $$ = (WordList){0}; }
| segment_name { $$ = ast_words_add(p, (WordList){0}, $segment_name); }
| '(' segment_alternatives ')' { $$ = $2; }
;
segment_alternatives:
  segment_alternative { $$ = ast_words_add(p, (WordList){0}, $1); }
| segment_alternatives '|' segment_alternative { $$ = ast_words_add(p, $1, $3); }
;
segment_alternative:
  segment_name
| star
;
segment_name:
  name
| star name { $$ = ast_glued(p, $star, $name); }
| segment_name star { $$ = ast_glued(p, $1, $star); }
| segment_name star name { $$ = ast_glued(p, ast_glued(p, $1, $star), $name); }
;
star:
  '*' { $$ = ast_word(p, "*", @$); }
;
index_range:
  expr { $$ = (IndexRange){.lo = $expr}; }
| expr[lo] ".." expr[hi] { $$ = (IndexRange){$lo, $hi, false}; }
| expr[lo] ".." { $$ = (IndexRange){.lo = $lo, .is_open = true}; }
;
index_alternatives:
  index_range[a] '|' index_range[b] {
    $$ = ast_indices_add(p, ast_indices_add(p, (IndexList){0}, $a), $b);
  }
| index_alternatives '|' index_range { $$ = ast_indices_add(p, $1, $index_range); }
;
actions:
  action { $$ = ast_actions_add(p, (ActionList){0}, $action); }
| actions action { $$ = ast_actions_add(p, $1, $action); }
;
action:
  NAME { $$ = ast_action(ACTION_SCHEME, @$, word($NAME, @$), 0); }
| "keep" { $$ = ast_action(ACTION_KEEP, @$, NO_WORD, 0); }
| "smooth" number { $$ = ast_action(ACTION_SMOOTH, @$, NO_WORD, $number); }
| "smooth" "auto" { $$ = ast_action(ACTION_SMOOTH, @$, word("auto", @2), 0); }
| "rotate" NAME { $$ = ast_action(ACTION_ROTATE, @$, word($NAME, @NAME), 0); }
| "fused" { $$ = ast_action(ACTION_FUSED, @$, NO_WORD, 0); }
| "invariant" { $$ = ast_action(ACTION_INVARIANT, @$, NO_WORD, 0); }
;

/* formats chosen by measurement */
auto_lines:
  %empty { $$ = (AutoLineList){0}; }
| auto_lines auto_line EOS { $$ = ast_auto_lines_add(p, $1, $auto_line); }
| auto_lines error EOS { $$ = $1; ast_lost(p); yyerrok; }
;
auto_line:
  "candidates" candidates { $$ = ast_auto_line(AUTO_CANDIDATES, @$, $candidates); }
| "calibrate" "on" string { $$ = ast_auto_file(AUTO_CALIBRATE, @$, $string, ast_auto_none()); }
| "calibrate" "on" string "samples" size {
    $$ = ast_auto_file(AUTO_CALIBRATE, @$, $string, ast_auto_value($size, 0, false));
  }
| "require" measure relation quantity {
    $$ = ast_auto_require(@$, $measure, $relation, $quantity, NO_WORD);
  }
| "require" measure relation quantity "on" string {
    $$ = ast_auto_require(@$, $measure, $relation, $quantity, $string);
  }
| "require" measure relation quantity "at" name '=' size {
    $$ = ast_auto_require(@$, $measure, $relation, $quantity, NO_WORD);
    ast_auto_at(p, &$$, $name, $size, 1);
  }
| "minimize" measure { $$ = ast_auto_line(AUTO_MINIMIZE, @$, $measure); }
| "minimize" measure "at" weighted_sizes {
    $$ = ast_auto_line(AUTO_MINIMIZE, @$, $measure);
    $$.at = $weighted_sizes.at;
  }
| "couple" "siblings" { $$ = ast_auto_line(AUTO_COUPLE, @$, ast_auto_none()); }
| "slower" "error" { $$ = ast_auto_line(AUTO_SLOWER, @$, ast_auto_word(word("error", @2))); }
| "slower" NAME { $$ = ast_auto_line(AUTO_SLOWER, @$, ast_auto_word(word($NAME, @NAME))); }
;
candidates:
  candidate { $$ = ast_auto_none(); ast_auto_name(p, &$$, $candidate); }
| candidates ',' candidate { $$ = $1; ast_auto_name(p, &$$, $candidate); }
;
candidate:
  NAME { $$ = word($NAME, @$); }
| "keep" { $$ = ast_word(p, "keep", @$); }
;
measure:
  "cosine" { $$ = ast_auto_word(word("cosine", @$)); }
| "sqnr" { $$ = ast_auto_word(word("sqnr", @$)); }
| "bytes" { $$ = ast_auto_word(word("bytes", @$)); }
| "latency" { $$ = ast_auto_word(word("latency", @$)); }
| "error" { $$ = ast_auto_word(word("error", @$)); }
| NAME { $$ = ast_auto_word(word($NAME, @$)); }
;
relation:
  ">=" { $$ = true; }
| "<=" { $$ = false; }
;
quantity:
  number
| TIME { $$ = $TIME; }
;
weighted_sizes:
  weighted_size
| weighted_sizes ',' weighted_size {
    $$ = $1;
    ast_auto_at_add(p, &$$, &$3);
  }
;
weighted_size:
  name '=' size ':' number { $$ = ast_auto_none(); ast_auto_at(p, &$$, $name, $size, $number); }
| name '=' size { $$ = ast_auto_none(); ast_auto_at(p, &$$, $name, $size, 1); }
;
shard_lines:
  %empty
| shard_lines path ':' shard_action EOS
| shard_lines error EOS { yyerrok; }
;
shard_action: "out" | "out" "reduce" "sum" | "in" | "in" "reduce" "sum" | NAME;

/* names */
name:
  NAME { $$ = word($NAME, @$); }
| contextual { $$ = ast_word(p, $contextual, @$); }
;
contextual:
  "weight" { $$ = "weight"; }
| "act" { $$ = "act"; }
| "sym" { $$ = "sym"; }
| "asym" { $$ = "asym"; }
| "codebook" { $$ = "codebook"; }
| "per" { $$ = "per"; }
| "tensor" { $$ = "tensor"; }
| "channel" { $$ = "channel"; }
| "token" { $$ = "token"; }
| "group" { $$ = "group"; }
| "scale" { $$ = "scale"; }
| "static" { $$ = "static"; }
| "dynamic" { $$ = "dynamic"; }
| "by" { $$ = "by"; }
| "fast" { $$ = "fast"; }
| "keep" { $$ = "keep"; }
| "smooth" { $$ = "smooth"; }
| "rotate" { $$ = "rotate"; }
| "fused" { $$ = "fused"; }
| "invariant" { $$ = "invariant"; }
| "atol" { $$ = "atol"; }
| "rtol" { $$ = "rtol"; }
| "cosine" { $$ = "cosine"; }
| "sqnr" { $$ = "sqnr"; }
| "candidates" { $$ = "candidates"; }
| "on" { $$ = "on"; }
| "samples" { $$ = "samples"; }
| "require" { $$ = "require"; }
| "bytes" { $$ = "bytes"; }
| "minimize" { $$ = "minimize"; }
| "latency" { $$ = "latency"; }
| "at" { $$ = "at"; }
| "couple" { $$ = "couple"; }
| "siblings" { $$ = "siblings"; }
| "slower" { $$ = "slower"; }
| "error" { $$ = "error"; }
| "out" { $$ = "out"; }
| "reduce" { $$ = "reduce"; }
| "sum" { $$ = "sum"; }
| "module" { $$ = "module"; }
;

%%

static void dsl_error(const Span *at, Parse *p, const char *message)
{
    (void)message; /* the parser's stack is at its limit: the only call bison leaves to us */
    p->failed = true;
    diag_error(p->diag, *at, E_LIMIT, "the text is nested too deeply");
}

static bool is_word(yysymbol_kind_t symbol)
{
    return symbol >= YYSYMBOL_VERSION && symbol <= YYSYMBOL_MODULE;
}

static bool is_contextual(yysymbol_kind_t symbol)
{
    return symbol >= YYSYMBOL_WEIGHT && symbol <= YYSYMBOL_MODULE;
}

/* "'model'", "'->'", "a name". */
static void put_symbol(Sb *sb, yysymbol_kind_t symbol)
{
    const char *name = yysymbol_name(symbol);
    bool is_sign = is_word(symbol) || (symbol >= YYSYMBOL_ARROW && symbol <= YYSYMBOL_GE);
    if (is_sign)
        sb_printf(sb, "'%s'", name);
    else
        sb_put(sb, name);
}

/* Not what a name stands for as well, nor what is refused as not supported yet. */
static bool is_told(yysymbol_kind_t symbol, bool any_name)
{
    return !(any_name && is_contextual(symbol)) && symbol != YYSYMBOL_MODULE &&
           symbol != YYSYMBOL_SHARD;
}

static void put_expected(Sb *sb, const yysymbol_kind_t *expected, int num)
{
    bool any_name = false;
    int left = 0;
    for (int i = 0; i < num; i++)
        any_name = any_name || expected[i] == YYSYMBOL_NAME;
    for (int i = 0; i < num; i++)
        left += is_told(expected[i], any_name);
    if (left == 0 || left > 12)
        return;
    sb_put(sb, ", expected ");
    for (int i = 0, done = 0; i < num; i++) {
        if (!is_told(expected[i], any_name))
            continue;
        if (done)
            sb_put(sb, done + 1 == left ? " or " : ", ");
        put_symbol(sb, expected[i]);
        done++;
    }
}

/* The word of the grammar nearest to a name that cannot stand here. */
static const char *nearest_word(const yysymbol_kind_t *expected, int num, const char *found)
{
    Nearest nearest;
    nearest_init(&nearest, found);
    for (int i = 0; i < num; i++)
        if (is_word(expected[i]))
            nearest_offer(&nearest, yysymbol_name(expected[i]));
    return nearest_get(&nearest);
}

/* The reserved word of statements that ends in front of this place, where a name was meant; or
 * NULL. */
static const char *reserved_before(const Parse *p, uint32_t at)
{
    const char *text = parse_text(p);
    uint32_t end = at, start;
    while (end > 0 && (text[end - 1] == ' ' || text[end - 1] == '\t'))
        end--;
    for (start = end; start > 0 && text[start - 1] >= 'a' && text[start - 1] <= 'z';)
        start--;
    for (yysymbol_kind_t word = YYSYMBOL_PARAM; word <= YYSYMBOL_RETURN; word++)
        if (strlen(yysymbol_name(word)) == end - start &&
            !strncmp(yysymbol_name(word), text + start, end - start))
            return yysymbol_name(word);
    return NULL;
}

static int yyreport_syntax_error(const yypcontext_t *context, Parse *p)
{
    yysymbol_kind_t expected[YYNTOKENS], found = yypcontext_token(context);
    int num = yypcontext_expected_tokens(context, expected, YYNTOKENS);
    Span at = *yypcontext_location(context);
    const char *text = arena_strndup(p->arena, parse_text(p) + at.start,
                                     at.end - at.start > 40 ? 40 : at.end - at.start);
    if (num < 0)
        return num;
    Sb sb;
    sb_init(&sb, p->arena);
    if (found == YYSYMBOL_NAME || is_word(found))
        sb_printf(&sb, "unexpected '%s'", text);
    else if (found == YYSYMBOL_EOS && at.start == at.end) /* one that the text does not show */
        sb_put(&sb, parse_text(p)[at.start] == '}' ? "unexpected '}'" : "unexpected end of file");
    else if (found == YYSYMBOL_YYEOF || found == YYSYMBOL_EOS || found == YYSYMBOL_STRING)
        sb_printf(&sb, "unexpected %s%s", found == YYSYMBOL_STRING ? "string" : "",
                  found == YYSYMBOL_YYEOF ? "end of file"
                  : found == YYSYMBOL_EOS ? "end of the line"
                                          : "");
    else
        sb_printf(&sb, "unexpected '%s'", text);
    put_expected(&sb, expected, num);
    diag_error(p->diag, at, E_SYNTAX, "%s", sb.text);

    bool names = false;
    for (int i = 0; i < num; i++) {
        names = names || expected[i] == YYSYMBOL_NAME;
        if (expected[i] == YYSYMBOL_MODEL) /* at the start of an item */
            parse_skip_block(p);
    }
    const char *near = found == YYSYMBOL_NAME ? nearest_word(expected, num, text) : NULL;
    const char *reserved = names && *text == '=' ? reserved_before(p, at.start) : NULL;
    if (reserved)
        diag_help(p->diag, "'%s' is a reserved word and cannot be a name", reserved);
    else if (near)
        diag_help(p->diag, "did you mean '%s'?", near);
    else if (names && is_word(found) && !is_contextual(found))
        diag_help(p->diag, "'%s' is a reserved word and cannot be a name", text);
    else
        parse_explain(p, found == YYSYMBOL_YYEOF, at);
    return 0;
}
