use super::*;

fn page(width: u16) -> Page {
    Page { width: Some(width), ..Page::default() }
}

fn text(grid: Grid) -> String {
    let mut out = Vec::new();
    grid.write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

const HANDLE: &str = "k8s-pod-network.1efa87f4b0d5c1a7e8f9a0b1c2d3e4f5061728394a5b6c7d8e9f00112233445566";
const A_B: &str = "A  B";

#[test]
fn columns_stand_two_spaces_apart() {
    let mut grid = Grid::new(Page::default(), Detail::Short, "A  >COUNT  B");
    grid.row(["long text", "1", "x\ty"]);
    grid.row(["s", "1,000", ""]);
    assert_eq!(text(grid), "A          COUNT  B\nlong text      1  x\\ty\ns          1,000\n");
}

#[test]
fn a_narrow_terminal_breaks_texts_between_words() {
    let mut grid = Grid::new(page(40), Detail::Short, A_B);
    grid.row(["10.244.1.7", "used by default/web-0 and default/web-1 at once"]);
    let expected =
        "A           B\n10.244.1.7  used by default/web-0 and\n            default/web-1 at once\n";
    assert_eq!(text(grid), expected);
}

#[test]
fn handle_ids_are_shortened_only_where_there_is_no_room() {
    let shown = |page, detail| {
        let mut grid = Grid::new(page, detail, A_B);
        grid.row(["1", &format!("{HANDLE} is a handle")]);
        text(grid)
    };
    assert!(shown(page(80), Detail::Short).ends_with("1  k8s-pod-network.1efa87f4… is a handle\n"));
    for whole in [
        shown(Page::default(), Detail::Short),
        shown(page(200), Detail::Short),
        shown(page(80), Detail::Full),
    ] {
        assert!(whole.contains(HANDLE), "{whole}");
    }
    let key = format!("/calico/ipam/v2/handle/{HANDLE}");
    assert_eq!(shorten_handles(&key).unwrap(), "/calico/ipam/v2/handle/k8s-pod-network.1efa87f4…");
    for other in ["0f0e1d2c3b4a59687786951423324150", "default.web-0", "10.244.1.7", "v3.32.1", "."] {
        assert_eq!(shorten_handles(other), None, "{other}");
    }
}

#[test]
fn words_of_the_last_column_are_cut_where_nothing_else_helps() {
    let mut grid = Grid::new(page(40), Detail::Short, "A  B");
    grid.row(["10.244.1.7", &format!("{} end", "x".repeat(50))]);
    let shown = text(grid);
    assert!(shown.lines().all(|line| line.chars().count() <= 40) && shown.contains("x…\n"), "{shown}");
}

#[test]
fn columns_are_left_out_last_and_by_name() {
    let filled = |page, detail| {
        let mut grid = Grid::new(page, detail, "NAME  >TOTAL  >COOLING  >FREE");
        grid.can_do_without(&["COOLING", "TOTAL"]);
        grid.row(["a-pool-of-some-name", "1", "2", "3"]);
        text(grid)
    };
    let one = filled(page(41), Detail::Short);
    assert_eq!(one, filled(page(200), Detail::Short), "{one}");
    assert_eq!(
        filled(page(36), Detail::Short),
        "NAME                 TOTAL  FREE\na-pool-of-some-name      1     3\n\
         (COOLING is hidden: narrow terminal;\n`-o wide` shows it)\n"
    );
    assert!(filled(page(36), Detail::Full).contains("COOLING"));
    assert!(filled(page(26), Detail::Short).contains("(COOLING and TOTAL are"));
}

#[test]
fn numbers_of_large_pools_are_rounded_down_where_there_is_no_room() {
    let number = "1,208,925,819,614,629,174,706,176";
    assert_eq!(round(number).as_deref(), Some("1.20e24"));
    assert_eq!((round("1,000,000,000,000"), round("unknown"), round("")), (None, None, None));
    let mut grid = Grid::new(page(200), Detail::Short, ">N");
    grid.row([number]);
    assert!(text(grid).contains(number));
}

#[test]
fn texts_without_end_are_cut() {
    let mut grid = Grid::new(Page::default(), Detail::Full, "A");
    grid.row(["é".repeat(1_000_000)]);
    assert_eq!(text(grid).lines().nth(1).unwrap().chars().count(), LONGEST + 1);
}

#[test]
fn a_terminal_that_is_far_too_narrow_breaks_lines_by_itself() {
    let mut grid = Grid::new(page(40), Detail::Full, A_B);
    let (a, b) = ("x".repeat(38), "two words and more of them");
    grid.row([a.as_str(), b]);
    assert_eq!(text(grid).lines().nth(1), Some(format!("{a}  {b}").as_str()));
}

#[test]
fn colours_appear_only_where_they_are_wanted() {
    for color in [false, true] {
        let mut grid = Grid::new(Page { color, ..Page::default() }, Detail::Short, A_B);
        grid.colored_row(Some(AnsiColor::Red), ["x", "y"]);
        let shown = text(grid);
        assert_eq!(shown.contains('\u{1b}'), color);
        assert_eq!(shown.contains("\u{1b}[31mx\u{1b}[0m  y\n"), color, "{shown:?}");
    }
}
